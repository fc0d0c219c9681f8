"""Figures as tables for people and as JSON for programs."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.measuring import CaseResult, Role

_NAME_WIDTH = 30


def draw(console: Console, title: str, results: Sequence[CaseResult], figure: str | None = None) -> None:
    """One table: a block of lines per case, the quickest of each in bold, losses named."""
    works = [found.work for result in results for found in result.contenders.values()]
    counted = [
        name
        for name in ("rows", "bytes", "requests", "pages")
        if any(getattr(w, name) is not None for w in works)
    ]
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=SIMPLE_HEAD)
    table.add_column("case", min_width=_NAME_WIDTH)
    table.add_column("contender", no_wrap=True)
    parts = [
        *dict.fromkeys(part for result in results for m in result.contenders.values() for part in m.parts)
    ]
    timed = any(m.cpu_ms is not None for result in results for m in result.contenders.values())
    cpu = ["CPU ms"] if timed else []
    for name in ("ms", "least", *cpu, *parts, *([figure] if figure else []), *counted):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("vs best peer", no_wrap=True)
    if timed:
        table.add_column("CPU", no_wrap=True)
    for result in results:
        lines = _lines(result, parts, counted, with_figure=figure is not None, timed=timed)
        for name, line in itertools.zip_longest(textwrap.wrap(result.case.name, _NAME_WIDTH), lines):
            table.add_row(name or "", *(line or []))
        table.add_section()
    console.print(table)


def _lines(
    result: CaseResult, parts: Sequence[str], counted: Sequence[str], *, with_figure: bool, timed: bool
) -> Iterator[list[str | Text]]:
    quickest = min((m.ms for m in result.contenders.values() if m.ms is not None), default=None)
    for name, found in result.contenders.items():
        ms = Text(_ms(found.ms), style="bold" if found.ms is not None and found.ms == quickest else "")
        figure = result.case.figure
        more = [_ms(found.cpu_ms)] if timed else []
        more += [_ms(found.parts.get(part)) for part in parts]
        if with_figure:
            more.append(figure(found.ms) if figure and found.ms is not None else "–")
        work = [_count(getattr(found.work, counter)) for counter in counted]
        label = Text(name, style={Role.OURS: "cyan", Role.PEER: "", Role.REFERENCE: "dim"}[found.role])
        against = [_against(result.best_peer, found.ms, found.role)]
        if timed:
            against.append(_against(result.least_peer_cpu, found.cpu_ms, found.role))
        yield [label, ms, _ms(found.least_ms), *more, *work, *against]


def _against(peer: float | None, ms: float | None, role: Role) -> Text:
    if not ms or peer is None:
        return Text("–", style="dim")
    ratio = peer / ms
    text = f"{_ratio(ratio)} ×"
    if role is not Role.OURS:
        return Text(text, style="dim")
    return Text(text, style="green") if ratio >= 1 else Text(f"{text} loss", style="bold red")


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def _ms(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.3f}" if value < 10 else f"{value:,.1f}"


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def draw_promises(console: Console, results: Sequence[CaseResult], *, quick: bool) -> None:
    """Targets met and not met, and how many cases were lost."""
    promised = [(result, target) for result in results for target in result.case.targets]
    if promised:
        title = "Targets (quick: small sizes, a hint only)" if quick else "Targets"
        table = Table(
            title=title, title_justify="left", title_style="bold", header_style="dim", box=SIMPLE_HEAD
        )
        table.add_column("case", overflow="fold")
        for name in ("target", "found"):
            table.add_column(name, justify="right")
        table.add_column("")
        for result, target in promised:
            found = target.measure(result)
            met = target.met(found)
            word = Text("met", style="green") if met else Text("NOT met", style="bold red")
            table.add_row(result.case.name, target.text, f"{found:,.2f}", word)
        console.print(table)
    ours = dict.fromkeys(
        name for result in results for name, found in result.contenders.items() if found.role is Role.OURS
    )
    for name in ours:
        _draw_losses(console, f"{name}: " if len(ours) > 1 else "", results, name)


def _draw_losses(console: Console, prefix: str, results: Sequence[CaseResult], name: str) -> None:
    ratios = [(result, result.speedup_of(name)) for result in results]
    raced = [(result, ratio) for result, ratio in ratios if ratio is not None]
    lost = [(result, ratio) for result, ratio in raced if ratio < 1]
    if not raced:
        return
    console.print(
        f"{prefix}{len(raced) - len(lost)} of {len(raced)} cases won against the best peer, {len(lost)} lost."
    )
    for result, ratio in lost:
        console.print(f"  lost: {result.case.name}, {_ratio(ratio)} × the best peer", style="red")


def as_json(name: str, results: Iterable[CaseResult]) -> dict[str, Any]:
    """The figures as other programs read them; ``ms`` is the median."""
    return {
        "benchmark": name,
        "cases": [
            {
                "case": result.case.name,
                "contenders": {
                    contender: {
                        "ms": found.ms,
                        "cpu_ms": found.cpu_ms,
                        "rows": found.work.rows,
                        "bytes": found.work.bytes,
                        "requests": found.work.requests,
                        **({} if found.work.pages is None else {"pages": found.work.pages}),
                        **({"parts": dict(found.parts)} if found.parts else {}),
                    }
                    for contender, found in result.contenders.items()
                },
                "speedup_vs_best_peer": result.speedup,
            }
            for result in results
        ],
    }
