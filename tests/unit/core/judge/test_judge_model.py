"""The judge against brute force: units of known values, their honest evidence, random IR."""

from __future__ import annotations

import math
import random

import numpy as np
import pyarrow as pa
import pytest

import skipstone as sk
import skipstone.core.judge as kernels
from skipstone.core.domain.spans import NumberSpans
from skipstone.core.evidence import ColumnFacts, Evidence
from skipstone.core.ir import compile_predicate
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.judge import Verdict, VerdictBits, judge
from skipstone.predicate import tree

SCHEMA = pa.schema([("i", pa.int64()), ("f", pa.float64()), ("s", pa.string())])
NAN = math.nan
INTS = [None, -3, -1, 0, 1, 2, 5]
FLOATS = [None, NAN, -math.inf, -1.5, -0.0, 0.0, 2.5, math.inf]
TEXTS = [None, "", "a", "ab", "abc", "b", "ÿ"]
DOMAINS = {"i": INTS, "f": FLOATS, "s": TEXTS}


def facts(name: str, units: list[list[object]], rng: random.Random) -> ColumnFacts:
    """Valid evidence about the units: sometimes tight, sometimes wider, sometimes unknown."""
    blank = ColumnFacts.unknown(SCHEMA.field(name).type, len(units))
    lower, upper = (list(b) if name != "s" else [None] * len(units) for b in (blank.lower, blank.upper))
    may_value, may_null, may_nan = (
        np.ones(len(units), dtype=bool),
        np.ones(len(units), dtype=bool),
        np.full(len(units), name == "f"),
    )
    for unit, values in enumerate(units):
        plain = [v for v in values if v is not None and v == v]
        keys = [v.encode() if isinstance(v, str) else v for v in plain]
        if rng.random() < 0.8:
            may_null[unit] = None in values
            may_value[unit] = bool(plain)
        if name == "f" and rng.random() < 0.5:
            may_nan[unit] = any(v is not None and v != v for v in values)
        if keys and rng.random() < 0.8:
            lower[unit] = min(keys) if rng.random() < 0.8 or name != "i" else min(keys) - 2  # type: ignore[type-var,operator]
            upper[unit] = max(keys) if rng.random() < 0.8 or name != "i" else max(keys) + 2  # type: ignore[type-var,operator]
    if name == "s":
        bounds = [pa.array(b, pa.large_binary()) for b in (lower, upper)]
    else:
        bounds = [np.array(b, dtype=blank.lower.dtype) for b in (lower, upper)]
    no = np.zeros(len(units), dtype=bool)
    return ColumnFacts(blank.type, bounds[0], bounds[1], no, no, may_value, may_null, may_nan)


def leaf(rng: random.Random) -> sk.Predicate:
    name = rng.choice(["i", "f", "s"])
    column, value = sk.col(name), rng.choice([v for v in DOMAINS[name] if v is not None])
    kind = rng.choice(["compare", "compare", "in", "null", "nan", "between", "match", "pair", "opaque"])
    if kind == "compare":
        return tree.Compare(rng.choice(tree.COMPARE_OPS), column, sk.lit(value))
    if kind == "in":
        values = rng.sample(DOMAINS[name], rng.randint(1, 3))
        return column.isin(pa.array(values, SCHEMA.field(name).type))
    if kind == "null":
        return column.is_null()
    if kind == "nan":
        return column.is_nan()
    if kind == "between":
        high = rng.choice([v for v in DOMAINS[name] if v is not None])
        return column.between(value, high, rng.choice(["both", "left", "right", "neither"]))
    if kind == "match":
        return sk.col("s").like(rng.choice(["a%", "ab", "%b", "a_", "_%"]))
    if kind == "pair":
        return tree.Compare(rng.choice(tree.COMPARE_OPS), sk.col("i"), sk.col("i"))
    return sk.udf(lambda x: x, ["i"])


def random_tree(rng: random.Random, depth: int = 3) -> sk.Predicate:
    if depth == 0 or rng.random() < 0.3:
        return leaf(rng)
    kind = rng.choice(["and", "or", "not", "truth"])
    if kind == "not":
        return ~random_tree(rng, depth - 1)
    if kind == "truth":
        return tree.Truth(random_tree(rng, depth - 1), rng.choice([True, False, None]))
    args = [random_tree(rng, depth - 1) for _ in range(rng.randint(2, 3))]
    return tree.conjunction(args) if kind == "and" else tree.disjunction(args)


def order(value: object) -> tuple[int, object]:
    return (1, 0) if value != value else (0, value)


def truth(p: sk.Predicate, row: dict[str, object]) -> set[bool | None]:
    """Every value the predicate may have for a row; an opaque part may have any."""

    def value(expr: tree.Expr) -> object:
        return row[expr.path[0]] if isinstance(expr, tree.Column) else expr.scalar.as_py()  # type: ignore[attr-defined]

    match p:
        case tree.And(args) | tree.Or(args):
            bad = isinstance(p, tree.Or)
            found: set[bool | None] = {not bad}
            for arg in args:
                found = {_kleene(a, b, stop=bad) for a in found for b in truth(arg, row)}
            return found
        case tree.Not(arg):
            return {None if t is None else not t for t in truth(arg, row)}
        case tree.Truth(arg, wanted):
            return {t is wanted for t in truth(arg, row)}
        case tree.Opaque():
            return {True, False, None}
        case tree.IsNull(arg):
            return {value(arg) is None}
        case tree.IsNan(arg):
            v = value(arg)
            return {None if v is None else v != v}
        case tree.IsIn(arg, values):
            v, items = value(arg), values.to_pylist()
            if v is None:
                return {None}
            hit = any(w is not None and order(w) == order(v) for w in items)
            return {True if hit else None if None in items else False}
        case tree.Between(arg, low, high, low_in, high_in):
            first = tree.Compare(">=" if low_in else ">", arg, low)
            return truth(tree.And((first, tree.Compare("<=" if high_in else "<", arg, high))), row)
        case tree.Like(arg, pattern):
            v = value(arg)
            return {None if v is None else _like(str(v), pattern)}
        case tree.Compare(op, left, right):
            a, b = value(left), value(right)
            if op == "<=>":
                return {(a is None) == (b is None) and (a is None or order(a) == order(b))}
            if a is None or b is None:
                return {None}
            x, y = order(a), order(b)
            return {
                {"=": x == y, "<>": x != y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[op]  # type: ignore[operator]
            }
    raise AssertionError(p)


def _kleene(a: bool | None, b: bool | None, *, stop: bool) -> bool | None:
    if a is stop or b is stop:
        return stop
    return None if a is None or b is None else not stop


def _like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(_like(text[n:], pattern[1:]) for n in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and _like(text[1:], pattern[1:])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(40))
def test_bits_cover_what_happens(seed: int) -> None:
    rng = random.Random(seed)
    dropped = proven = 0
    for _ in range(50):
        units = [
            [{n: rng.choice(d) for n, d in DOMAINS.items()} for _ in range(rng.randint(0, 3))]
            for _ in range(20)
        ]
        evidence = Evidence(
            np.array([len(u) for u in units]),
            {(n,): facts(n, [[row[n] for row in u] for u in units], rng) for n in DOMAINS},
        )
        predicate = random_tree(rng)
        passes = rng.choice([{}, {"node_passes": ()}, {"predicate_passes": ()}])
        node = compile_predicate(predicate, SCHEMA, **passes).node  # type: ignore[arg-type]
        judgement = judge(node, evidence)
        verdicts = judgement.verdicts()
        blame = judgement.blame()
        for unit, rows in enumerate(units):
            seen = set().union(*(truth(predicate, row) for row in rows)) if rows else set()
            bits = judgement.bits
            said = {
                value
                for value, bit in ((True, bits.true), (False, bits.false), (None, bits.null))
                if bit[unit]
            }
            assert seen <= said, (seed, str(predicate), rows, seen, said)
            assert verdicts[unit] != Verdict.ALL or seen == {True}
            assert verdicts[unit] != Verdict.NONE or True not in seen
            assert (blame[unit] >= 0) == (verdicts[unit] == Verdict.NONE)
        dropped += int((verdicts == Verdict.NONE).sum())
        proven += int((verdicts == Verdict.ALL).sum())
    assert dropped > 50
    assert proven > 5


def test_searches_agree_with_comparing_every_span() -> None:
    rng = np.random.default_rng(7)
    for dtype, type in ((np.int64, pa.int64()), (np.float64, pa.float64())):
        for _ in range(50):
            lower = np.sort(rng.integers(0, 1000, 500)).astype(dtype)
            upper = np.maximum.accumulate(lower + rng.integers(0, 30, 500)).astype(dtype)
            starts = rng.integers(-10, 1100, 40).astype(dtype)
            ends = starts + rng.integers(0, 4, 40)
            from skipstone.core.domain.keys import key_space

            spans = NumberSpans.of(key_space(type), list(zip(starts.tolist(), ends.tolist(), strict=True)))
            wanted = kernels._compare(lower, upper, spans)
            assert np.array_equal(kernels._search_spans(lower, upper, spans), wanted)
            assert np.array_equal(kernels._search_units(lower, upper, spans), wanted)
            mixed = rng.permutation(500)
            assert np.array_equal(kernels._search_spans(lower[mixed], upper[mixed], spans), wanted[mixed])


def test_many_texts_agree_with_few(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    words = ["".join(rng.choice("abc") for _ in range(rng.randint(0, 4))) for _ in range(200)]
    bounds = sorted([sorted([rng.choice(words).encode(), rng.choice(words).encode()]) for _ in range(100)])
    low = pa.array([None if rng.random() < 0.1 else b[0] for b in bounds], pa.large_binary())
    high = pa.array([None if rng.random() < 0.1 else b[1] for b in bounds], pa.large_binary())
    yes, no = np.ones(100, dtype=bool), np.zeros(100, dtype=bool)
    column = ColumnFacts(pa.string(), low, high, no, no, yes, yes, no)
    evidence = Evidence(np.ones(100), {("s",): column})
    for negated in (False, True):
        predicate = sk.col("s").isin(words[:60])
        node = compile_predicate(~predicate if negated else predicate, SCHEMA).node
        many = judge(node, evidence).bits
        monkeypatch.setattr(kernels, "FEW", 10_000)
        few = judge(node, evidence).bits
        monkeypatch.undo()
        assert np.array_equal(many.true, few.true)
        assert np.array_equal(many.false, few.false)


def test_bits_follow_kleene() -> None:
    """Each combination of possible values: AND, OR, NOT give exactly the reachable results."""
    sets = [(t, f, n) for t in (0, 1) for f in (0, 1) for n in (0, 1)]
    values = (True, False, None)
    for a in sets:
        for b in sets:
            left, right = (VerdictBits(*(np.array([bool(bit)]) for bit in bits)) for bits in (a, b))
            for stop, result in ((False, left & right), (True, left | right)):
                reach = {
                    _kleene(x, y, stop=stop)
                    for x, i in zip(values, a, strict=True)
                    for y, j in zip(values, b, strict=True)
                    if i and j
                }
                got = {
                    v
                    for v, bit in zip(values, (result.true, result.false, result.null), strict=True)
                    if bit[0]
                }
                assert reach <= got
                if any(a) and any(b):
                    assert got == reach


def test_column_without_evidence_is_unknown() -> None:
    node = compile_predicate(sk.col("i") == 1, SCHEMA).node
    assert judge(node, Evidence(np.ones(3), {})).verdicts().tolist() == [Verdict.SOME] * 3
    assert Evidence(np.ones(3), {}).facts(ColumnRef(("i",), pa.int64())).may_null.all()
