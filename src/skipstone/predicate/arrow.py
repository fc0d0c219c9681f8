"""pyarrow expressions to predicates and back.

pyarrow compares floats by IEEE rules, Skipstone by Spark's (NaN equals itself and is the largest value);
both directions rewrite comparisons where this matters. In pyarrow ``x != x`` is TRUE for NaN only and
works for every type, so it replaces ``is_nan``, which has no kernel for most types.

One difference remains: pyarrow's ``is_in`` distinguishes 0.0 from -0.0 in a float column. A list of
floats keeps that behaviour; a list of integers that contains zero matches both.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from skipstone.errors import PredicateError
from skipstone.predicate import tree
from skipstone.predicate.foreign import (
    OPERATORS,
    ExpressionWriter,
    TranslationError,
    add_prunable,
    finite,
    flatten,
    float32_readings,
    has_zero,
    infinite,
    is_nan,
    is_number,
    like_regex,
    literal,
    neighbours,
    plain,
)

T = TypeVar("T")
Entries = list[tuple[bytes, bytes]]


def from_arrow(expr: pc.Expression, *, sql: bool = False) -> tree.Predicate:
    """Convert a pyarrow expression to a predicate with the same result for every row.

    With ``sql`` the expression follows the rules of the SQL engine that made it: NaN equals itself and is
    the largest value, and a list contains NULL with the result NULL.

    >>> import pyarrow.compute as pc
    >>> from_arrow(pc.field("x") < 5)
    Predicate("x < 5")
    """
    try:
        return _condition(decode(expr, sql=sql))
    except pa.ArrowNotImplementedError:
        # A column by position or a user-defined function can't be deserialized.
        return tree.Opaque((), None, str(expr))


# -- from pyarrow: the serialized form, Arrow IPC with the structure in the schema's metadata --------


@dataclass(frozen=True, slots=True)
class ArrowNode:
    """One node of a serialized expression (a column, a constant or a call) with its metadata entries."""

    batch: pa.RecordBatch
    entries: Entries
    name: str = ""
    args: tuple[ArrowNode, ...] = ()
    options: pa.Scalar | None = None
    path: tuple[str, ...] = ()
    scalar: pa.Scalar | None = None
    sql: bool = False
    """Whether a comparison follows the rules of SQL engines for NaN and NULL."""

    def walk(self) -> Iterator[ArrowNode]:
        """This node and every node below it, depth first."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.args))

    def option(self, name: str) -> Any:
        """One option of the call as a Python value."""
        return None if self.options is None else self.options[name].as_py()

    def expression(self) -> pc.Expression:
        """This node as a pyarrow expression."""
        batch = self.batch.replace_schema_metadata(pa.KeyValueMetadata(self.entries))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return pc.Expression._deserialize(sink.getvalue())


def decode(expr: pc.Expression, *, sql: bool = False) -> ArrowNode:
    """Decode ``expr``; raises ArrowNotImplementedError for columns by position."""
    reader = pa.ipc.open_file(expr.__reduce__()[1][0])
    batch, entries = reader.get_batch(0), _metadata(reader.schema)
    done: list[ArrowNode] = []
    calls: list[tuple[int, int]] = []
    at = 0
    while at < len(entries):
        key, value = entries[at]
        if key == b"call":
            calls.append((at, len(done)))
        elif key == b"end":
            start, first = calls.pop()
            args = [n for n in done[first:] if n.options is None or n.name]
            options = next((n.options for n in done[first:] if n.options is not None and not n.name), None)
            del done[first:]
            whole, name = entries[start : at + 1], value.decode()
            done.append(ArrowNode(batch, whole, name, tuple(args), options, sql=sql))
        elif key == b"nested_field_ref":
            parts = entries[at + 1 : at + 1 + int(value)]
            done.append(ArrowNode(batch, [entries[at], *parts], path=tuple(v.decode() for _, v in parts)))
            at += len(parts)
        elif key == b"field_ref":
            done.append(ArrowNode(batch, [entries[at]], path=(value.decode(),)))
        else:
            column = batch.column(int(value))[0]
            kind = {"options": column} if key == b"options" else {"scalar": column}
            done.append(ArrowNode(batch, [entries[at]], **kind))
        at += 1
    return done[0]


def _metadata(schema: pa.Schema) -> Entries:
    """Metadata of the schema in order, with the repeated keys that ``schema.metadata`` drops."""
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = schema.__arrow_c_schema__()
    # ArrowSchema begins with three pointers: format, name, metadata.
    at = ctypes.cast(get_pointer(capsule, b"arrow_schema"), ctypes.POINTER(ctypes.c_void_p))[2] or 0

    def size() -> int:
        nonlocal at
        at += 4
        return int(struct.unpack("=i", ctypes.string_at(at - 4, 4))[0])

    def text() -> bytes:
        nonlocal at
        length = size()
        at += length
        return ctypes.string_at(at - length, length)

    return [(text(), text()) for _ in range(size())]


# -- from pyarrow: conditions ------------------------------------------------------------------


def _condition(node: ArrowNode) -> tree.Predicate:
    try:
        if node.name:
            return _handler(_CONDITIONS, node)(node)
        return tree.condition(_value(node))
    except TranslationError:
        return _opaque(node)


def _handler(table: dict[str, Callable[[ArrowNode], T]], node: ArrowNode) -> Callable[[ArrowNode], T]:
    if node.name not in table:
        raise TranslationError(node.name)
    return table[node.name]


def _opaque(node: ArrowNode) -> tree.Predicate:
    roots = dict.fromkeys(n.path[0] for n in node.walk() if n.path)
    expr = node.expression()
    if node.sql and any(n.name in _COMPARES and _may_compare_floats(n) for n in node.walk()):
        problem = f"pyarrow can't evaluate {expr} by the rules of SQL"
        raise PredicateError(problem, hint='use to_dataset(rules="pyarrow"), or filter in the engine')
    return tree.Opaque(
        tuple(tree.Column((r,)) for r in roots), _ArrowEvaluator(expr), " ".join(str(expr).split())
    )


@dataclass(frozen=True, slots=True)
class _ArrowEvaluator:
    """Evaluates a pyarrow expression on a batch."""

    expr: pc.Expression

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        from pyarrow import acero

        table = pa.Table.from_batches([batch])
        if not batch.num_columns:
            table = pa.table({"": pa.nulls(batch.num_rows)})
        source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
        project = acero.Declaration("project", acero.ProjectNodeOptions([self.expr], ["mask"]), [source])
        mask = project.to_table(use_threads=False).column("mask").combine_chunks()
        return mask.cast(pa.bool_())


def _join(node: ArrowNode) -> tree.Predicate:
    parts = flatten(node, lambda part: part.args if part.name == node.name else None)
    return (tree.conjunction if node.name == "and_kleene" else tree.disjunction)(map(_condition, parts))


def _compare(op: tree.CompareOp, node: ArrowNode) -> tree.Predicate:
    left, right = node.args
    if left.scalar is not None and right.scalar is None:
        left, right, op = right, left, tree.FLIPPED[op]
    x, y = _value(left), _value(right)
    plain_compare = tree.Compare(op, x, y)
    if node.sql and not (isinstance(x, tree.Cast) and pa.types.is_date(x.type)):
        return plain_compare
    if isinstance(y, tree.Literal):
        if isinstance(x, tree.Cast) and pa.types.is_date(x.type):
            return add_prunable(op, x, neighbours(y.scalar), _opaque(node))
        if is_nan(y.scalar):
            return _true_unless_null(x) if op == "<>" else _false_unless_null(x)
        risky = op in (">", ">=") and is_number(y.scalar.type) and _may_be_float(x)
        return tree.And((plain_compare, tree.Not(_nan_if_float(x)))) if risky else plain_compare
    if not (_may_be_float(x) and _may_be_float(y)):
        return plain_compare
    if x.key() == y.key() and op == "<>":
        return _nan_if_float(x)
    both = tree.And((_nan_if_float(x), _nan_if_float(y)))
    if op in ("=", "<>"):
        return tree.And((plain_compare, tree.Not(both))) if op == "=" else tree.Or((plain_compare, both))
    low, high = (x, y) if op in ("<", "<=") else (y, x)
    # IEEE comparisons with a NaN high end are FALSE; comparing the low end with itself preserves NULL.
    return tree.And((plain_compare, tree.Not(tree.And((_nan_if_float(high), tree.Compare("=", low, low))))))


def _nan_if_float(expr: tree.Expr) -> tree.Predicate:
    """Test for NaN of a column whose type is unknown."""
    return tree.IsNan(expr, lenient=True)


def _may_be_float(expr: tree.Expr) -> bool:
    return not isinstance(expr, tree.Cast) or pa.types.is_floating(expr.type)


def _may_compare_floats(node: ArrowNode) -> bool:
    types = [arg.scalar.type for arg in node.args if arg.scalar is not None]
    return all(is_number(type) for type in types)


def _true_unless_null(x: tree.Expr) -> tree.Predicate:
    return tree.Or((tree.Not(tree.IsNull(x)), tree.Constant(None)))


def _false_unless_null(x: tree.Expr) -> tree.Predicate:
    return tree.And((tree.IsNull(x), tree.Constant(None)))


def _is_in(node: ArrowNode) -> tree.Predicate:
    if node.options is None:
        raise TranslationError
    x, members = _value(node.args[0]), plain(node.options["value_set"].values)
    if node.sql and not members.null_count:
        # The engine has given the list the column's type.
        return tree.IsIn(x, members)
    values, readings = members.drop_null(), float32_readings(members.drop_null())
    if pa.types.is_timestamp(values.type):
        days = values.cast(pa.date32()).cast(values.type)
        readings = None if days.equals(values) else pa.concat_arrays([values, days])
    if readings is not None or (pa.types.is_floating(values.type) and has_zero(values)):
        wider = tree.IsIn(x, values if readings is None else readings)
        upper = tree.Or((wider, tree.IsNull(x))) if members.null_count else wider
        return tree.And((upper, _opaque(node)))
    hit = tree.IsIn(x, values)
    match node.option("null_matching_behavior"):
        case 0 if members.null_count:
            return tree.Or((tree.Truth(hit, True), tree.IsNull(x)))
        case 0 | 1:
            return tree.Truth(hit, True)
        case 2:
            return hit
        case _:
            return tree.IsIn(x, members)


def _is_null(node: ArrowNode) -> tree.Predicate:
    (arg,) = node.args
    if arg.name in _CONDITIONS:
        return tree.Truth(_condition(arg), None)
    x = _value(arg)
    if not node.option("nan_is_null"):
        return tree.IsNull(x)
    return tree.Or((tree.IsNull(x), tree.Truth(_nan_if_float(x), True)))


def _if_else(node: ArrowNode) -> tree.Predicate:
    test, *branches = node.args
    if test.name not in ("is_valid", "is_null"):
        raise TranslationError
    which, (yes, no) = _condition(test), map(_condition, branches)
    return tree.Or((tree.And((which, yes)), tree.And((tree.Not(which), no))))


def _match(kind: tree.MatchKind, node: ArrowNode) -> tree.Predicate:
    return tree.Match(kind, _value(node.args[0]), _pattern(node))


def _like(node: ArrowNode) -> tree.Predicate:
    pattern = _pattern(node)
    # pyarrow treats a backslash differently in patterns that are a plain prefix, suffix or substring.
    if isinstance(pattern, bytes) or "\\" in pattern:
        raise TranslationError
    return tree.Like(_value(node.args[0]), pattern)


def _pattern(node: ArrowNode) -> str | bytes:
    # RE2 folds case by its own table ("ſ" is an "s"), Spark by lower().
    if node.options is None or node.option("ignore_case"):
        raise TranslationError
    pattern = node.options["pattern"].as_buffer().to_pybytes()
    try:
        return bytes(pattern).decode()
    except UnicodeDecodeError:
        return bytes(pattern)


_COMPARES: dict[str, tree.CompareOp] = {
    "equal": "=",
    "not_equal": "<>",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_MATCHES: dict[str, tree.MatchKind] = {
    "starts_with": "prefix",
    "ends_with": "suffix",
    "match_substring": "contains",
}
_CONDITIONS: dict[str, Callable[[ArrowNode], tree.Predicate]] = {
    "and_kleene": _join,
    "or_kleene": _join,
    "and_not_kleene": lambda n: tree.And((_condition(n.args[0]), tree.Not(_condition(n.args[1])))),
    "invert": lambda n: tree.Not(_condition(n.args[0])),
    "is_null": _is_null,
    "is_valid": lambda n: tree.Not(_is_null(n)),
    "true_unless_null": lambda n: _true_unless_null(_value(n.args[0])),
    "is_nan": lambda n: tree.IsNan(_value(n.args[0])),
    "is_finite": lambda n: finite(_value(n.args[0])),
    "is_inf": lambda n: infinite(_value(n.args[0])),
    "is_in": _is_in,
    "if_else": _if_else,
    "match_like": _like,
    **{name: functools.partial(_compare, op) for name, op in _COMPARES.items()},
    **{name: functools.partial(_match, kind) for name, kind in _MATCHES.items()},
}


# -- from pyarrow: values ----------------------------------------------------------------------


def _value(node: ArrowNode) -> tree.Expr:
    if node.path:
        return tree.Column(node.path)
    if node.scalar is not None:
        return literal(node.scalar)
    return _handler(_VALUES, node)(node)


def _struct_field(node: ArrowNode) -> tree.Expr:
    base, path = _value(node.args[0]), node.option("field_ref")
    # A dot path; brackets contain positions, a backslash escapes.
    if not isinstance(base, tree.Column) or not path.startswith(".") or set(path) & set("[\\"):
        raise TranslationError
    return tree.Column((*base.path, *path[1:].split(".")))


def _cast(node: ArrowNode) -> tree.Expr:
    if node.options is None or any(v is True for v in node.options.as_py().values()):
        raise TranslationError
    to = node.options["to_type"].type
    # pyarrow casts a date or timestamp to days or ticks; Spark raises, or returns seconds.
    if to in (pa.int32(), pa.int64()) or not (is_number(to) or pa.types.is_date32(to)):
        raise TranslationError
    return tree.Cast(_value(node.args[0]), to)


def _slice(node: ArrowNode) -> tree.Expr:
    start, stop, step = (node.option(name) for name in ("start", "stop", "step"))
    if not (0 <= start <= stop < 2**31 and step == 1):
        raise TranslationError
    return tree.Call("substr", (_value(node.args[0]), tree.lit(start + 1), tree.lit(stop - start)))


def _call(name: str, node: ArrowNode) -> tree.Expr:
    return tree.Call(name, tuple(_value(arg) for arg in node.args))


_CALLS = {
    "add_checked": "+",
    "subtract_checked": "-",
    "multiply_checked": "*",
    "negate_checked": "negative",
    "utf8_lower": "lower",
    "utf8_upper": "upper",
    "utf8_length": "length",
}
_VALUES: dict[str, Callable[[ArrowNode], tree.Expr]] = {
    "struct_field": _struct_field,
    "cast": _cast,
    "utf8_slice_codeunits": _slice,
    **{name: functools.partial(_call, call) for name, call in _CALLS.items()},
}


# -- to pyarrow --------------------------------------------------------------------------------


def to_arrow(predicate: tree.Predicate) -> pc.Expression:
    """Convert a predicate to a pyarrow expression with Spark's result for every column type.

    Casts to integers and decimals are pyarrow's safe casts: they raise during evaluation where Spark
    would truncate or round.
    """
    return _ArrowWriter().write(predicate)


def _true_or_null(x: pc.Expression) -> pc.Expression:
    return pc.Expression._call("true_unless_null", [x])


class _ArrowWriter(ExpressionWriter):
    library = "pyarrow"
    functions = MappingProxyType(
        {
            ("+", 2): pc.add_checked,
            ("-", 2): pc.subtract_checked,
            ("*", 2): pc.multiply_checked,
            ("negative", 1): pc.negate_checked,
            ("lower", 1): pc.utf8_lower,
            ("upper", 1): pc.utf8_upper,
            ("length", 1): pc.utf8_length,
        }
    )
    # Comparisons with NaN, which equals itself and is larger than any other value.
    nan_tests: ClassVar[Mapping[str, Callable[[pc.Expression], pc.Expression]]] = MappingProxyType(
        {
            "=": lambda x: x != x,
            ">=": lambda x: x != x,
            "<>": lambda x: x == x,
            "<": lambda x: x == x,
            "<=": _true_or_null,
            ">": lambda x: ~_true_or_null(x),
        }
    )

    def column(self, node: tree.Column) -> pc.Expression:
        return pc.field(node.path if len(node.path) > 1 else node.path[0])

    def literal(self, node: tree.Literal) -> pc.Expression:
        return pc.scalar(node.scalar)

    def constant(self, value: bool | None) -> pc.Expression:
        return pc.scalar(pa.scalar(value, pa.bool_()))

    def cast(self, node: tree.Cast) -> pc.Expression:
        if node.lenient or node.type == pa.int64() or not is_number(node.type):
            why = (
                "pyarrow casts raise on bad values, use the column's time zone and return timestamps as ticks"
            )
            raise self.inexpressible(node, why)
        return self.write(node.arg).cast(node.type, safe=not pa.types.is_floating(node.type))

    def substring(self, x: pc.Expression, start: int, length: int) -> pc.Expression:
        return pc.utf8_slice_codeunits(x, start, start + length)

    def is_not_null(self, x: pc.Expression) -> pc.Expression:
        return x.is_valid()

    def compare(self, op: tree.CompareOp, x: pc.Expression, y: pc.Expression) -> pc.Expression:
        match op:
            case "=":
                return (x == y) | ((x != x) & (y != y))
            case "<=":
                return (x <= y) | ((y != y) & _true_or_null(x))
            case ">=":
                return self.compare("<=", y, x)
            case "<=>":
                return super().compare(op, x, y)
        return ~self.compare(tree.NEGATED[op], x, y)

    def compare_literal(self, op: tree.CompareOp, x: pc.Expression, literal: tree.Literal) -> pc.Expression:
        if is_nan(literal.scalar):
            return self.nan_tests[op](x)
        if op in (">", ">=") and is_number(literal.scalar.type):
            return ~OPERATORS[tree.NEGATED[op]](x, self.literal(literal))
        return OPERATORS[op](x, self.literal(literal))

    def is_in(self, x: pc.Expression, node: tree.IsIn) -> pc.Expression:
        values = node.values
        # pyarrow casts the list to the column's type, which would round it to float32.
        lossy = float32_readings(values) is not None
        hit = pc.is_in(x.cast(pa.float64(), safe=False) if lossy else x, values)
        if has_zero(values):
            hit = hit | (x == 0)
        if pa.types.is_timestamp(values.type):
            # For a date column pyarrow truncates the list to days.
            days = values.cast(pa.date32()).cast(values.type)
            hit = hit & ~pc.is_in(x, days.filter(pc.invert(pc.is_in(days, values))))
        return hit | ~_true_or_null(x)

    def is_nan(self, x: pc.Expression) -> pc.Expression:
        return x != x

    def match(self, x: pc.Expression, node: tree.Match) -> pc.Expression:
        match = {"prefix": pc.starts_with, "suffix": pc.ends_with, "contains": pc.match_substring}[node.kind]
        return match(x, node.text)

    def pattern(self, x: pc.Expression, node: tree.Like) -> pc.Expression:
        if "\\" in node.pattern or (node.escape and node.escape in node.pattern):
            return pc.match_substring_regex(x, like_regex(node))
        return pc.match_like(x, node.pattern)
