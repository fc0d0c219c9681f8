"""``judge(node, evidence)``: one function for every level, N units at once."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from skipstone.core.domain import Domain
from skipstone.core.domain.spans import NumberSpans
from skipstone.core.evidence import Array, ColumnFacts, Evidence
from skipstone.core.ir.nodes import All, Any, Decided, Leaf, Node, Pair, Test, Unknown
from skipstone.core.judge.bits import Bits
from skipstone.core.judge.numbers import meets_numbers
from skipstone.core.judge.pairs import judge_pair
from skipstone.core.judge.texts import meets_texts

Cleared = Mapping[int, Array]
"""Leaves (by ``id``) for which other evidence, such as a bloom filter, rules out TRUE in some units."""


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """The bits of N units, and those of each top-level conjunct: who dropped a unit."""

    bits: Bits
    parts: tuple[tuple[Node, Bits], ...]

    def verdicts(self) -> Array:
        """NONE, SOME or ALL for each unit."""
        return self.bits.verdicts()

    def take(self, units: Array) -> Judgement:
        """The judgement of the chosen units, in that order."""
        return Judgement(self.bits.take(units), tuple((node, bits.take(units)) for node, bits in self.parts))

    def blame(self) -> Array:
        """For each unit the first conjunct that no row can satisfy; -1 where the unit is kept."""
        blamed = np.full(len(self.bits.true), -1, dtype=np.int32)
        for number in reversed(range(len(self.parts))):
            blamed[~self.parts[number][1].true] = number
        return blamed


def judge(node: Node, evidence: Evidence, cleared: Cleared | None = None) -> Judgement:
    """What ``evidence`` proves about ``node``, for each unit."""
    occupied = evidence.occupied
    parts = []
    total: Bits | None = None
    for conjunct in node.args if isinstance(node, All) else (node,):
        bits = _judge(conjunct, evidence, cleared)
        if occupied is not None:
            bits = Bits(bits.true & occupied, bits.false & occupied, bits.null & occupied)
        parts.append((conjunct, bits))
        total = bits if total is None else total & bits
    assert total is not None
    return Judgement(total, tuple(parts))


def _judge(node: Node, evidence: Evidence, cleared: Cleared | None) -> Bits:
    match node:
        case Leaf():
            return _leaf(node, evidence, cleared)
        case All(args):
            return functools.reduce(Bits.__and__, [_judge(a, evidence, cleared) for a in args])
        case Any(args):
            return functools.reduce(Bits.__or__, [_judge(a, evidence, cleared) for a in args])
        case Test(arg, value, negated):
            bits = _judge(arg, evidence, cleared).test(value)
            return ~bits if negated else bits
        case Pair():
            return judge_pair(node, evidence)
        case Decided(value):
            return Bits.constant(len(evidence), value)
        case Unknown():
            return Bits.unknown(len(evidence))
    raise AssertionError(f"no judge for {type(node).__name__}")


def _leaf(leaf: Leaf, evidence: Evidence, cleared: Cleared | None) -> Bits:
    facts = evidence.facts(leaf.ref)
    span = leaf.span
    if span is None:
        true, false, null = (meets(facts, domain) for domain in (leaf.true, leaf.false, leaf.null))
    else:
        # One run of numbers, NULL just for NULL: neither of the other two sets has to be made.
        low, high = span
        true = (facts.lower <= high) & (facts.upper >= low) & facts.may_value
        false = ((facts.lower < low) | (facts.upper > high)) & facts.may_value
        null = facts.may_null
        if leaf.true.nans:
            true = true | facts.may_nan
        else:
            false = false | facts.may_nan
    absent = None if cleared is None else cleared.get(id(leaf))
    return Bits(true if absent is None else true & ~absent, false, null)


def meets(facts: ColumnFacts, domain: Domain) -> Array:
    """Per unit, whether some value the unit may hold belongs to ``domain``."""
    found: Array | None = None
    if not domain.spans.is_empty:
        if domain.spans.is_all:
            found = facts.may_value
        elif isinstance(domain.spans, NumberSpans):
            found = meets_numbers(facts, domain.spans) & facts.may_value
        else:
            found = meets_texts(facts, domain.spans) & facts.may_value
    if domain.nulls:
        found = facts.may_null if found is None else found | facts.may_null
    if domain.nans:
        found = facts.may_nan if found is None else found | facts.may_nan
    return np.zeros(len(facts), dtype=bool) if found is None else found
