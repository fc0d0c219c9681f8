"""What must hold of every pruned file: the properties, and a message that makes a failure a test."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
import pyarrow as pa

import skipstone as sk
from skipstone.core.ir import Compiled
from skipstone.core.ir.compile import NODE_PASSES, PREDICATE_PASSES, compile_predicate
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.judge import Verdict, judge
from skipstone.errors import TypeMismatchError
from skipstone.parquet.evidence import row_group_evidence
from skipstone.predicate import tree
from skipstone.prune.pruner import Pruner
from tests.property._layouts import Layout
from tests.property._oracle import CantEvaluate, Oracle, Truths

PASSES_SHARE = 0.3
SWITCHES = ("page_index", "bloom_filter", "dictionary")


@dataclass
class Tally:
    """What happened over many cases: proof that the test is not empty."""

    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return ", ".join(f"{name} {count:,}" for name, count in sorted(self.counts.items()))


@dataclass(frozen=True)
class Case:
    """One predicate about one file."""

    seed: str
    layout: Layout
    metadata: sk.ParquetMetadata
    predicate: tree.Predicate
    wider: pa.Schema | None = None
    """A schema the predicate is bound to instead of the file's own."""

    @property
    def schema(self) -> pa.Schema:
        return self.wider or self.metadata.arrow_schema

    def fail(self, what: str, rows: list[int], oracle: Oracle, truth: Truths) -> NoReturn:
        """Raise with everything a reproducer needs."""
        lines = [
            what,
            f"  case      {self.seed}",
            f"  file      {self.layout.path} ({oracle.rows} rows)",
            f"  layout    {self.layout.words}",
            f"  schema    {'of the file' if self.wider is None else self.wider}",
            f"  predicate {str(self.predicate)[:2000]}",
        ]
        if rows:
            row = rows[0]
            lines.append(f"  first wrong row {row}, where the oracle says {truth[row]}")
            lines += [
                f"    {'.'.join(path)} ({oracle.arrow(path).type}) = {_shown(oracle, path, row)}"
                for path in self.predicate.columns()
            ]
        raise AssertionError("\n".join(lines))


def _shown(oracle: Oracle, path: tuple[str, ...], row: int) -> str:
    return repr(oracle.column(path).items[row])[:200]


def check(case: Case, oracle: Oracle, tally: Tally, rng: random.Random) -> None:
    """Every property of one case."""
    count = tally.counts
    try:
        truth = oracle.answer(case.predicate)
    except CantEvaluate:
        count["skipped: no oracle"] += 1
        return
    wanted = np.array([v is True for v in truth], dtype=bool)
    try:
        compiled = compile_predicate(case.predicate, case.schema)
    except TypeMismatchError:
        count["skipped: types refused"] += 1
        return
    except Exception as error:
        case.fail(f"{type(error).__name__}: {error}", [], oracle, truth)
    switches = [dict.fromkeys(SWITCHES, True), dict.fromkeys(SWITCHES, False)]
    switches.append({name: rng.random() < 0.5 for name in SWITCHES})
    kept = []
    for chosen in switches:
        try:
            result = _prune(case, compiled, **chosen)
        except Exception as error:
            case.fail(f"{type(error).__name__}: {error} with {chosen}", [], oracle, truth)
        kept.append(_check_result(case, oracle, truth, wanted, result, f"{chosen}"))
        if chosen is switches[0]:
            _count(count, result, wanted)
    most, least, other = kept
    for more, fewer, words in ((least, most, "all on"), (least, other, switches[2]), (other, most, "all on")):
        extra = np.flatnonzero(fewer & ~more)
        if len(extra):
            case.fail(f"more evidence added rows ({words})", extra.tolist(), oracle, truth)
    _check_bits(case, oracle, truth, compiled)
    if rng.random() < PASSES_SHARE:
        _check_passes(case, oracle, truth, wanted, rng)
        count["with passes off"] += 1
    count["cases"] += 1


def _prune(case: Case, compiled: Compiled, **switches: bool) -> sk.PruneResult:
    """Prune with a predicate that is compiled already: the same for every combination of switches."""
    pruner = Pruner(case.predicate, options=sk.PruneOptions(**switches))
    pruner.schema = case.wider
    pruner._compiled = (case.schema, compiled)
    return pruner.prune(str(case.layout.path), metadata=case.metadata)


def _check_result(
    case: Case, oracle: Oracle, truth: Truths, wanted: np.ndarray, result: sk.PruneResult, words: str
) -> np.ndarray:
    rows = _mask(result.rows, oracle.rows)
    proven = _mask(result.proven, oracle.rows)
    for what, wrong in (
        ("a matching row was dropped", wanted & ~rows),
        ("a row proven to match doesn't", proven & ~wanted),
        ("a proven row was dropped", proven & ~rows),
    ):
        if wrong.any():
            case.fail(f"{what}, with {words}", np.flatnonzero(wrong).tolist(), oracle, truth)
    starts = result.metadata.row_group_starts
    for group, verdict in enumerate(result.verdicts):
        window = slice(starts[group], starts[group] + result.metadata.row_group_rows[group])
        if verdict == Verdict.NONE and wanted[window].any():
            case.fail(f"row group {group} judged NONE has a match, with {words}", [], oracle, truth)
        if verdict == Verdict.ALL and not wanted[window].all():
            case.fail(f"row group {group} judged ALL has a miss, with {words}", [], oracle, truth)
    back = result.from_selection(result.row_selection())
    if back != result.rows:
        case.fail(f"the selection gives other rows, with {words}", [], oracle, truth)
    return rows


def _check_bits(case: Case, oracle: Oracle, truth: Truths, compiled: Compiled) -> None:
    """Stronger than verdicts: each of the three bits must be set where a row needs it."""
    metadata = case.metadata
    refs = {ref.path: ColumnRef(ref.path, ref.type) for ref in compiled.node.refs()}
    bits = judge(compiled.node, row_group_evidence(metadata, list(refs.values()))).bits
    for group, start in enumerate(metadata.row_group_starts):
        window = truth[start : start + metadata.row_group_rows[group]]
        for value, may in ((True, bits.true), (False, bits.false), (None, bits.null)):
            if not may[group] and value in window:
                row = int(start) + window.index(value)
                case.fail(f"row group {group} may not be {value}, but a row is", [row], oracle, truth)


def _check_passes(case: Case, oracle: Oracle, truth: Truths, wanted: np.ndarray, rng: random.Random) -> None:
    """Any pass can be left out without changing an answer."""
    before = tuple(p for p in PREDICATE_PASSES if rng.random() < 0.4)
    after = tuple(p for p in NODE_PASSES if rng.random() < 0.4)
    compiled = compile_predicate(case.predicate, case.schema, predicate_passes=before, node_passes=after)
    result = _prune(case, compiled)
    names = [p.__name__ for p in (*before, *after)]
    _check_result(case, oracle, truth, wanted, result, f"only the passes {names}")
    _check_bits(case, oracle, truth, compiled)


def _mask(rows: sk.RowSet, total: int) -> np.ndarray:
    mask = np.zeros(total, dtype=bool)
    mask[np.fromiter(rows.to_bitmap(), dtype=np.int64)] = True
    return mask


def _count(count: Counter[str], result: sk.PruneResult, wanted: np.ndarray) -> None:
    kept = len(result.rows)
    count["with a dropped row"] += kept < len(wanted)
    count["with a proven row"] += len(result.proven) > 0
    count["with matches"] += bool(wanted.any())
    count["exact"] += kept == int(wanted.sum()) and bool(wanted.any()) and kept < len(wanted)
    for level in result.trace.levels:
        if level.dropped:
            count[f"dropped by {level.name}"] += 1
        if level.whole:
            count[f"whole by {level.name}"] += 1
