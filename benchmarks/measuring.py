"""Cases, their contenders, and the clock: everyone in turns, after a round in which all must agree."""

from __future__ import annotations

import enum
import gc
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

OURS = "skipstone"


class Role(enum.Enum):
    """What a contender is there for."""

    OURS = "ours"
    PEER = "peer"
    REFERENCE = "reference"
    """Shown beside the others but no rival: skipping switched off, or bytes that are only counted."""


@dataclass(frozen=True, slots=True)
class Work:
    """What an answer took and gave; None where that can't be told."""

    rows: int | None = None
    bytes: int | None = None
    requests: int | None = None
    pages: int | None = None


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to answer a case's question.

    ``run`` is timed (None: only ``work`` is known); ``prepare`` runs before each repetition, untimed, and
    its result is handed to ``run``. ``answer`` turns a result into what must agree with the others (None:
    another question) and ``work`` into what it cost; neither is timed. ``parts`` tells after each
    repetition how many ms went where, by names of its own.
    """

    name: str
    run: Callable[[Any], Any] | None
    role: Role = Role.PEER
    prepare: Callable[[], Any] = lambda: None
    answer: Callable[[Any], Any] | None = None
    work: Callable[[Any], Work] = lambda _result: Work()
    parts: Callable[[Any], Mapping[str, float]] = lambda _result: {}


@dataclass(frozen=True, slots=True)
class Target:
    """A promise about a case: ``measure`` must not exceed ``limit``, or not be below it (``least``)."""

    text: str
    limit: float
    measure: Callable[[CaseResult], float]
    least: bool = False

    def met(self, found: float) -> bool:
        """Whether what was measured keeps the promise."""
        return found >= self.limit if self.least else found <= self.limit


@dataclass(frozen=True, slots=True)
class Case:
    """One question, its contenders, and what is promised."""

    name: str
    contenders: Sequence[Contender]
    targets: Sequence[Target] = ()
    figure: Callable[[float], str] | None = None
    """A figure drawn from each contender's median ms, such as nanoseconds per unit."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One contender's figures."""

    role: Role
    ms: float | None
    least_ms: float | None
    work: Work
    parts: Mapping[str, float] = field(default_factory=dict)
    """Medians of where the time went."""
    cpu_ms: float | None = None
    """Median CPU time of all threads of this process and of its children, such as Spark's JVM."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case's figures."""

    case: Case
    contenders: dict[str, Measured]

    @property
    def ours(self) -> float | None:
        """Our median."""
        return next((m.ms for m in self.contenders.values() if m.role is Role.OURS), None)

    @property
    def best_peer(self) -> float | None:
        """The quickest peer's median."""
        peers = (m.ms for m in self.contenders.values() if m.role is Role.PEER)
        return min((ms for ms in peers if ms is not None), default=None)

    @property
    def least_peer_cpu(self) -> float | None:
        """The least CPU time of a peer."""
        peers = (m.cpu_ms for m in self.contenders.values() if m.role is Role.PEER)
        return min((ms for ms in peers if ms is not None), default=None)

    @property
    def speedup(self) -> float | None:
        """How many times quicker than the best peer: below one is a loss."""
        return self.best_peer / self.ours if self.best_peer and self.ours else None

    def speedup_of(self, name: str) -> float | None:
        """The same for one contender; None if it was not timed, or no peer was."""
        found = self.contenders.get(name)
        return self.best_peer / found.ms if self.best_peer and found is not None and found.ms else None

    def cpu_speedup_of(self, name: str) -> float | None:
        """The CPU time of the most frugal peer over that of one contender."""
        found, least = self.contenders.get(name), self.least_peer_cpu
        return least / found.cpu_ms if least and found is not None and found.cpu_ms else None

    def ms(self, name: str) -> float:
        """The median of a contender that was timed."""
        found = self.contenders[name].ms
        assert found is not None
        return found


class Disagreement(AssertionError):
    """Two contenders answered the same question differently."""


# -- measuring ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to repeat a case: until ``seconds`` are spent, within the two limits."""

    seconds: float
    least: int
    most: int


FULL = Pace(seconds=4.0, least=5, most=300)
QUICK = Pace(seconds=0.4, least=3, most=50)


def measure(case: Case, pace: Pace, seed: int) -> CaseResult:
    """Time a case's contenders in turn, after one round that checks their answers."""
    works = _first_round(case)
    timed = [c for c in case.contenders if c.run is not None]
    times: dict[str, list[_Lap]] = {c.name: [] for c in timed}
    order = random.Random(seed)
    gc.collect()
    began = time.perf_counter()
    for done in range(pace.most):
        if done >= pace.least and time.perf_counter() - began > pace.seconds:
            break
        order.shuffle(timed)
        for contender in timed:
            times[contender.name].append(_once(contender))
    return CaseResult(case, {c.name: _measured(c, times.get(c.name), works[c.name]) for c in case.contenders})


def _first_round(case: Case) -> dict[str, Work]:
    works: dict[str, Work] = {}
    first: tuple[str, Any] | None = None
    for contender in case.contenders:
        result = None if contender.run is None else contender.run(contender.prepare())
        works[contender.name] = contender.work(result)
        if contender.answer is None:
            continue
        answer = contender.answer(result)
        del result  # it may be large, and the next contender's too
        if first is None:
            first = (contender.name, answer)
        elif not _same(first[1], answer):
            raise Disagreement(
                f"{case.name}: {first[0]} and {contender.name} disagree: {_brief(first[1])}, {_brief(answer)}"
            )
    return works


_Lap = tuple[float, float, Mapping[str, float]]


def _once(contender: Contender) -> _Lap:
    assert contender.run is not None
    given = contender.prepare()
    others = _processes()
    cpu, start = time.process_time_ns(), time.perf_counter_ns()
    result = contender.run(given)
    stop, cpu_stop = time.perf_counter_ns(), time.process_time_ns()
    spent = cpu_stop - cpu + spent_between(others, _processes())
    return (stop - start) / 1e6, spent / 1e6, contender.parts(result)


_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_CPU_FIELDS = slice(11, 15)
"""After the name in ``/proc/PID/stat``: user and system time, own and of children that have ended."""

Processes = dict[int, tuple[int, int]]
"""Per process its parent and its CPU time, which includes that of children that have ended."""


def _processes() -> Processes:
    """This process, of which only ended children count, and all below it; to a hundredth of a second."""
    ended = os.times()
    found = {os.getpid(): (0, int((ended.children_user + ended.children_system) * 1e9))}
    waiting = [os.getpid()]
    while waiting:
        parent = waiting.pop()
        threads = Path(f"/proc/{parent}/task").glob("*/children")
        for pid in (int(pid) for path in threads for pid in _text(path).split()):
            waiting.append(pid)
            fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
            found[pid] = (parent, sum(map(int, fields[_CPU_FIELDS])) * _TICK_NS)
    return found


def spent_between(before: Processes, after: Processes) -> int:
    """CPU time between two looks at the processes below this one."""
    earlier: Counter[int] = Counter()
    for pid, (parent, spent) in before.items():
        heir = pid
        while heir not in after:
            # What an ended process had spent by then is now part of its parent's time.
            heir, parent = parent, before[parent][0]
        earlier[heir] += spent
    # It is not if the parent never waited for it.
    return sum(max(0, spent - earlier[pid]) for pid, (_, spent) in after.items())


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # the process has ended


def _measured(contender: Contender, laps: list[_Lap] | None, work: Work) -> Measured:
    if not laps:
        return Measured(contender.role, None, None, work)
    times, cpu_times, all_parts = zip(*laps, strict=True)
    parts = {name: statistics.median(parts[name] for parts in all_parts) for name in all_parts[0]}
    cpu = statistics.median(cpu_times)
    return Measured(contender.role, statistics.median(times), min(times), work, parts, cpu)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return bool(np.array_equal(a, b))
    return bool(a == b)


def _brief(answer: Any) -> str:
    shown = str(answer)
    return shown if len(shown) < 80 else f"{shown[:80]}…"
