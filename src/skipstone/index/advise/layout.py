"""What questions would skip if a lake's rows lay in another order.

A model made of bounds: each row group of the sample is a box, its rows spread evenly between the bounds of
every column and each column on its own. Another layout cuts the rows of all boxes into units of equal
size; what a unit may hold of a column is what the boxes it took rows from may hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from skipstone.evidence import Array, ColumnFacts, Evidence, widest
from skipstone.index.advise.asked import Question
from skipstone.index.advise.axis import Axis, Mixture, shares
from skipstone.index.advise.profile import Profile
from skipstone.index.advise.sample import Sample, spread
from skipstone.ir.nodes import ColumnRef
from skipstone.judge import Verdict, judge
from skipstone.prune.pages import Path

_BOXES = 768
_UNITS = 2_048
# Rows drawn for each unit of a curve, and bits of each column that the curve follows.
_DRAWN, _BITS = 64, 16
_HAIR = 1e-7


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Row groups of a sample, each with its rows and its partition."""

    sample: Sample
    units: Array
    rows: Array
    groups: Array
    """Numbers of the partitions; rows never leave theirs."""
    profiles: Mapping[Path, Profile]

    @classmethod
    def of(cls, sample: Sample, profiles: Mapping[Path, Profile]) -> Boxes:
        """The sample's row groups, or some of very many."""
        survey = sample.survey
        units = spread(np.flatnonzero(survey.rows > 0), _BOXES)
        folders = [sample.lake.entries[number].key.rpartition("/")[0] for number in sample.files.tolist()]
        partitioned = bool(survey.given)
        _, groups = np.unique(np.array(folders if partitioned else [""] * len(folders)), return_inverse=True)
        return cls(
            sample, units, survey.rows[units].astype(np.float64), groups[survey.owners[units]], profiles
        )

    def unit_rows(self, columns: Sequence[Profile]) -> float:
        """Rows of the units that are judged: pages where there is a page index, else row groups."""
        pages = [column.page_rows for column in columns if column.page_rows is not None]
        return max(max(pages) if pages else float(self.rows.mean()), 1.0)

    @property
    def scale(self) -> float:
        """Rows that there are for each row of the boxes: other partitions have units of their own."""
        all_rows = self.sample.rows * (1.0 if self.groups.any() else self.sample.scale)
        return float(all_rows / self.rows.sum())


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """New units: their rows, the boxes they took some from, and bounds of the columns they are ordered by."""

    rows: Array
    took: Array
    ordered: Mapping[Path, ColumnFacts]


def after(boxes: Boxes, by: Sequence[Profile], questions: Sequence[Question]) -> float:
    """The share of rows skipped if each partition were sorted by a column, or Z-ordered by two."""
    units = boxes.rows.sum() * boxes.scale / boxes.unit_rows(by)
    most = max(round(min(units, _UNITS)), 1)
    kept = _kept(boxes, by, most, questions)
    if units > _UNITS:
        # Each end of a range costs a unit, so what is kept is a constant and a part that falls with units.
        half = _kept(boxes, by, most // 2, questions)
        slope = (half - kept) * most
        kept = np.maximum(kept - slope / most + slope / units, 0.0)
    if not boxes.sample.whole:
        # What is asked for may lie where the sample has nothing: count one unit.
        kept = np.maximum(kept, min(1 / units, 1.0))
    weights = np.array([question.weight for question in questions])
    return float(1 - (kept * weights).sum() / weights.sum())


def _kept(boxes: Boxes, by: Sequence[Profile], units: int, questions: Sequence[Question]) -> Array:
    layout = _sorted(boxes, by[0], units) if len(by) == 1 else _interleaved(boxes, by, units)
    known: dict[Path, ColumnFacts] = dict(layout.ordered)
    total = layout.rows.sum()
    kept = []
    for question in questions:
        for ref in question.refs:
            if ref.path not in known:
                known[ref.path] = _carried(boxes, ref, layout.took)
        evidence = Evidence(layout.rows, {ref.path: known[ref.path] for ref in question.refs})
        verdicts = judge(question.node, evidence).verdicts()
        kept.append(float(layout.rows[verdicts != Verdict.NONE].sum() / total))
    return np.array(kept)


def _sorted(boxes: Boxes, by: Profile, units: int) -> _Layout:
    axis, values = _axis(boxes, by), by.values[boxes.units]
    nulls = boxes.rows.sum() - values.sum()
    # Partitions one after the other on one line, each with its own stretch of it.
    shift = boxes.groups * axis.span
    low, high = axis.low + shift, axis.high + shift
    empty = min(round(units * nulls / boxes.rows.sum()), units - 1)
    if nulls:
        empty = max(empty, 1)
    cuts = Mixture.of(low, high, values).cuts(max(units - empty, 1))
    took = np.diff(shares(low, high, cuts), axis=1).T * values
    rows = np.full(len(took), values.sum() / len(took))
    first, last = np.floor(cuts[:-1] / axis.span), np.ceil(cuts[1:] / axis.span) - 1
    across = last > first
    lows = np.where(across, 0, cuts[:-1] - first * axis.span)
    highs = np.where(across, axis.span, cuts[1:] - first * axis.span)
    facts = _bounded(boxes, by, axis, lows, highs, took)
    # NULLs come first, in units of their own.
    blank = np.tile(boxes.rows - values, (empty, 1)) / max(empty, 1)
    facts = replace(facts, may_null=np.zeros(len(facts), dtype=bool))
    if empty:
        facts = ColumnFacts.concat([ColumnFacts.absent(by.ref.type, empty), facts])
    return _Layout(
        np.concatenate((np.full(empty, nulls / max(empty, 1)), rows)),
        _taken(boxes, np.concatenate((blank, took))),
        {by.ref.path: facts},
    )


def _interleaved(boxes: Boxes, by: Sequence[Profile], units: int) -> _Layout:
    """Rows drawn from the boxes, put along a Z-order curve of their ranks, and cut into units."""
    chance = np.random.default_rng(0)
    drawn = max(_DRAWN * units, 1)
    edges = np.cumsum(boxes.rows) / boxes.rows.sum()
    box = np.searchsorted(edges, (np.arange(drawn) + 0.5) / drawn).clip(max=len(edges) - 1)
    axes = [_axis(boxes, column) for column in by]
    places = [axis.low[box] + (axis.high - axis.low)[box] * chance.random(drawn) for axis in axes]
    order = np.lexsort((_curve([_ranks(place) for place in places]), boxes.groups[box]))
    unit = np.arange(drawn) * units // drawn
    starts = np.flatnonzero(np.diff(unit, prepend=-1))
    took = np.bincount(unit * len(boxes.rows) + box[order], minlength=units * len(boxes.rows))
    share = took.reshape(units, -1) * (boxes.rows.sum() / drawn)
    ordered = {}
    for column, axis, place in zip(by, axes, places, strict=True):
        low, high = np.minimum.reduceat(place[order], starts), np.maximum.reduceat(place[order], starts)
        ordered[column.ref.path] = _bounded(boxes, column, axis, low, high, share)
    return _Layout(share.sum(axis=1), _taken(boxes, share), ordered)


def _ranks(places: Array) -> Array:
    """Places as whole numbers of so many bits, each as often as any other."""
    ranks = np.empty(len(places), dtype=np.int64)
    ranks[np.argsort(places, kind="stable")] = np.arange(len(places))
    scaled: Array = (ranks << _BITS) // len(places)
    return scaled


def _curve(ranks: Sequence[Array]) -> Array:
    """The bits of the ranks, taken in turn."""
    curve = np.zeros(len(ranks[0]), dtype=np.int64)
    for bit in reversed(range(_BITS)):
        for rank in ranks:
            curve = curve << 1 | rank >> bit & 1
    return curve


# -- what units hold ---------------------------------------------------------------------------


def _axis(boxes: Boxes, column: Profile) -> Axis:
    axis = column.axis
    assert axis is not None
    return Axis(axis.type, axis.low[boxes.units], axis.high[boxes.units], axis.span, axis.whole, axis.origin)


def _taken(boxes: Boxes, took: Array) -> Array:
    """Whether a unit has a row of a box, or most of its rows."""
    enough: Array = (took * boxes.scale >= 0.5) | (took >= took.max(axis=1, keepdims=True, initial=0))
    return enough


def _bounded(boxes: Boxes, column: Profile, axis: Axis, low: Array, high: Array, took: Array) -> ColumnFacts:
    """Facts of units whose values lie in ``[low, high)``, widened to the values that the column has."""
    if column.total < 4 * len(low) and not (axis.whole and column.total >= axis.span):
        rows = column.values[boxes.units]
        steps = Mixture.of(axis.low, axis.high, rows).cuts(max(round(column.total), 1))
        hair = axis.span * _HAIR
        low = steps[np.maximum(np.searchsorted(steps, low + hair, side="right") - 1, 0)]
        high = steps[np.minimum(np.searchsorted(steps, high - hair, side="left"), len(steps) - 1)]
    lower, upper = axis.bounds(low, high)
    may_value, may_null, may_nan = _mays(boxes, column.facts, _taken(boxes, took))
    no = np.zeros(len(low), dtype=bool)
    return ColumnFacts(column.ref.type, lower, upper, no, no, may_value, may_null, may_nan)


def _carried(boxes: Boxes, ref: ColumnRef, took: Array) -> ColumnFacts:
    """Facts of a column that the layout doesn't order: all that the boxes may hold."""
    column = boxes.profiles[ref.path]
    may_value, may_null, may_nan = _mays(boxes, column.facts, took)
    no = np.zeros(len(took), dtype=bool)
    lower, upper = widest(ref.type, len(took))
    if column.axis is not None:
        axis = _axis(boxes, column)
        holds = took & column.facts.may_value[boxes.units]
        low = np.where(holds, axis.low, np.inf).min(axis=1, initial=np.inf)
        high = np.where(holds, axis.high, -np.inf).max(axis=1, initial=-np.inf)
        some = np.isfinite(low)
        lower, upper = axis.bounds(np.where(some, low, 0), np.where(some, high, axis.span))
    return ColumnFacts(ref.type, lower, upper, no, no, may_value, may_null, may_nan)


def _mays(boxes: Boxes, facts: ColumnFacts, took: Array) -> tuple[Array, Array, Array]:
    units = boxes.units
    flags = np.stack((facts.may_value[units], facts.may_null[units], facts.may_nan[units]), axis=1)
    found = took.astype(np.float64) @ flags > 0
    return found[:, 0], found[:, 1], found[:, 2]
