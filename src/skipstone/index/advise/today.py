"""What a question skips of a sample today: judged as a scan would judge it, level by level."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from skipstone.evidence import Array, ColumnFacts, Evidence
from skipstone.index.advise.asked import Question
from skipstone.index.advise.profile import Profile
from skipstone.index.advise.sample import Sample, spread
from skipstone.ir.nodes import Leaf
from skipstone.judge import Verdict, judge
from skipstone.prune.pages import Path, segments
from skipstone.prune.probes import useful_units

# Row groups whose pages are judged for one question.
_JUDGED = 16
_MOST_POINTS = 1_000
_FALSE_POSITIVES = 0.01


@dataclass(frozen=True, slots=True)
class Skips:
    """Shares of a sample's rows that a question skips; None where the level has nothing to say."""

    files: float
    row_groups: float
    pages: float | None
    bloom: float | None

    @property
    def best(self) -> float:
        """What bounds skip, down to the finest level there is."""
        return self.row_groups if self.pages is None else self.pages


def skips(
    sample: Sample,
    question: Question,
    columns: Collection[Path] | None = None,
    profiles: Mapping[Path, Profile] | None = None,
) -> Skips:
    """Judge a question by the evidence of these columns, or of all; with ``profiles`` also by blooms."""
    survey = sample.survey
    if not survey.rows.sum():
        return Skips(0.0, 0.0, None, None)
    refs = [ref for ref in question.refs if columns is None or ref.path in columns]
    # A column that the evidence doesn't have is unknown to the judge, so no unit is dropped by it.
    evidence = survey.evidence(refs)
    verdicts = judge(question.node, evidence).verdicts()
    kept = np.where(verdicts != Verdict.NONE, survey.rows, 0).astype(np.float64)
    by_file = np.bincount(survey.owners, survey.rows, len(sample.footers))
    found = np.bincount(survey.owners, kept, len(sample.footers)) > 0
    groups = _skipped(sample, kept)
    open_units = verdicts == Verdict.SOME
    chosen = spread(np.flatnonzero(open_units), _JUDGED).tolist()
    indexed = sample.pages(chosen, refs)
    if indexed:
        cut = segments(survey, chosen, indexed, evidence)
        left = judge(question.node, cut.evidence).verdicts() != Verdict.NONE
        share = float((cut.evidence.rows * left).sum() / survey.rows[chosen].sum())
        kept = np.where(open_units, kept * share, kept)
    pages = _skipped(sample, kept) if indexed else None
    bloom = None
    if profiles is not None:
        drops = _bloomed(question, evidence, np.flatnonzero(open_units), profiles, columns)
        bloom = None if drops is None else _skipped(sample, kept * (1 - drops))
    return Skips(_skipped(sample, by_file * found), groups, pages, bloom)


def _skipped(sample: Sample, kept: Array) -> float:
    share = float(kept.sum()) / sample.rows
    if not share and not sample.whole:
        # The units that hold what is asked for may be among those that were not looked at: count one.
        share = 1 / (max(len(kept), 1) * sample.scale)
    return min(max(1 - share, 0.0), 1.0)


def _bloomed(
    question: Question,
    evidence: Evidence,
    units: Array,
    profiles: Mapping[Path, Profile],
    columns: Collection[Path] | None,
) -> Array | None:
    """Per row group the chance that bloom filters drop it; None if no part asks for few values."""
    chances: dict[int, Array] = {}
    for leaf in question.node.leaves():
        points = _points(leaf) if columns is None or leaf.ref.path in columns else None
        profile = profiles.get(leaf.ref.path)
        if points is None or profile is None or profile.partition:
            continue
        inside = _inside(profile.facts, points)
        missing = (1 - profile.present) * (1 - _FALSE_POSITIVES)
        chances[id(leaf)] = np.where(inside > 0, missing**inside, 1.0)
    if not chances:
        return None
    best = {leaf: np.ones(len(evidence), dtype=bool) for leaf in chances}
    useful = useful_units(question.node, evidence, units, best)
    drops = np.zeros(len(evidence))
    drops[useful] = np.prod([chance[useful] for chance in chances.values()], axis=0)
    return drops


def _points(leaf: Leaf) -> Array | list[bytes] | None:
    """The few values that a leaf asks for, if it asks for nothing else."""
    true = leaf.true
    if leaf.ref.via or true.nulls or true.nans or true.spans.is_all or len(true.spans) > _MOST_POINTS:
        return None
    points = true.spans.points()
    return points if points is not None and 0 < len(points) <= _MOST_POINTS else None


def _inside(facts: ColumnFacts, points: Array | list[bytes]) -> Array:
    """How many of the points lie between each unit's bounds."""
    if isinstance(points, list):
        assert isinstance(facts.lower, pa.Array)
        ordered = sorted(points)
        # A loop over units: Arrow has no search among byte strings.
        firsts = [0 if key is None else bisect.bisect_left(ordered, key) for key in facts.lower.to_pylist()]
        lasts = [
            len(ordered) if key is None else bisect.bisect_right(ordered, key)
            for key in facts.upper.to_pylist()
        ]
        return np.maximum(np.array(lasts, dtype=np.int64) - np.array(firsts, dtype=np.int64), 0)
    ordered_keys = np.sort(points)
    begun = np.searchsorted(ordered_keys, facts.lower, side="left")
    ended = np.searchsorted(ordered_keys, facts.upper, side="right")
    counts: Array = np.maximum(ended - begun, 0)
    return counts
