"""The predicate tree, before it is bound to a schema.

An :class:`Expr` is a value (a column, a literal, a cast, a function call); a :class:`Predicate` is a
condition. Nodes are frozen and picklable. ``==`` on a value *builds* a comparison; ``==`` on two
predicates compares their structure.

>>> import skipstone as sk
>>> (sk.col("user_id") == 42) & sk.col("name").startswith("a")
Predicate("user_id = 42 AND name LIKE 'a%'")
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from typing import Literal as Choice

import pyarrow as pa

from skipstone.errors import NotExpressibleError, PredicateError, SkipstoneError, TypeMismatchError, require
from skipstone.predicate.values import drop_nulls, preview, structure_key, to_scalar, value_array

if TYPE_CHECKING:
    import datafusion
    import polars as pl
    import pyarrow.compute as pc
    import pyiceberg.expressions
    import pyspark.sql

    from skipstone.core.domain import ColumnDomain
    from skipstone.typing import Dialect, KeySetLike

CompareOp = Choice["=", "<>", "<", "<=", ">", ">=", "<=>"]
MatchKind = Choice["prefix", "suffix", "contains"]
Evaluate = Callable[[pa.RecordBatch], pa.Array]

COMPARE_OPS: tuple[CompareOp, ...] = ("=", "<>", "<", "<=", ">", ">=", "<=>")
NEGATED: dict[CompareOp, CompareOp] = {
    "=": "<>",
    "<>": "=",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
}
FLIPPED: dict[CompareOp, CompareOp] = {
    "=": "=",
    "<>": "<>",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
    "<=>": "<=>",
}


class Expr:
    """A value: a column, a literal, a cast or a function call.

    Comparisons and the methods below build conditions.

    Examples:
        >>> import skipstone as sk
        >>> sk.col("amount") * 2 > 10
        Predicate("(amount * 2) > 10")
    """

    __slots__ = ()
    __match_args__: tuple[str, ...]

    # -- structure ---------------------------------------------------------------------------

    def key(self) -> tuple[object, ...]:
        """Hashable structure of the tree, flat and level by level; equal trees have equal keys."""
        # A list that grows while it is iterated: not recursive, and with few calls, as each query has a key.
        values: list[object] = [self]
        parts: list[object] = []
        for value in values:
            kind = type(value)
            if kind is str or kind is bool or value is None:
                parts += (value,)
            elif kind is tuple:
                values += value  # type: ignore[arg-type]
                parts += (len(value),)  # type: ignore[arg-type]
            elif isinstance(value, Expr):
                values += _fields_of(kind)(value)  # type: ignore[arg-type]
                parts += (kind,)
            else:
                parts += (structure_key(value),)
        return tuple(parts)

    def children(self) -> Iterator[Expr]:
        """Direct child expressions."""
        for name in self.__match_args__:
            value = getattr(self, name)
            if isinstance(value, Expr):
                yield value
            elif isinstance(value, tuple):
                yield from (item for item in value if isinstance(item, Expr))

    def walk(self) -> Iterator[Expr]:
        """This node and every node below it, depth first."""
        stack: list[Expr] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(list(node.children())))

    def columns(self) -> tuple[tuple[str, ...], ...]:
        """Paths of the referenced columns, without duplicates, in order of first use."""
        paths: dict[tuple[str, ...], None] = {}
        stack: list[object] = [self]
        while stack:
            match stack.pop():
                case Column(path):
                    paths[path] = None
                case Literal():
                    pass
                case Compare(_, left, right):
                    stack += (right, left)
                case And(args) | Or(args):
                    stack += args[::-1]
                case tuple() as items:
                    stack += items[::-1]
                case Expr() as node:
                    stack += [getattr(node, name) for name in node.__match_args__[::-1]]
        return tuple(paths)

    def __hash__(self) -> int:
        return hash(self.key())

    def __bool__(self) -> bool:
        raise TypeError(
            "a Skipstone expression has no truth value; combine conditions with & | ~, "
            "not with and/or/not, and write a range as col.between(low, high)"
        )

    def __iter__(self) -> Iterator[Expr]:
        # Without this method Python would iterate through __getitem__(0), (1), ... forever.
        raise TypeError("a Skipstone expression is not iterable")

    # -- builders ----------------------------------------------------------------------------

    def __eq__(self, other: object) -> Predicate:  # type: ignore[override]
        return Compare("=", self, lit(other))

    def __ne__(self, other: object) -> Predicate:  # type: ignore[override]
        return Compare("<>", self, lit(other))

    def __lt__(self, other: object) -> Predicate:
        return Compare("<", self, lit(other))

    def __le__(self, other: object) -> Predicate:
        return Compare("<=", self, lit(other))

    def __gt__(self, other: object) -> Predicate:
        return Compare(">", self, lit(other))

    def __ge__(self, other: object) -> Predicate:
        return Compare(">=", self, lit(other))

    def eq_null_safe(self, other: object) -> Predicate:
        """``self <=> other``: NULL equals NULL, and the result is never NULL."""
        return Compare("<=>", self, lit(other))

    def isin(self, values: Iterable[object] | pa.Array | pa.ChunkedArray) -> Predicate:
        """``self IN (values)``; pass an Arrow array for a large set."""
        if isinstance(values, Expr):
            raise PredicateError(
                "isin needs a list of values, not a column", hint="use == to compare two columns"
            )
        return IsIn(self, value_array(values))

    def between(
        self, low: object, high: object, inclusive: Choice["both", "left", "right", "neither"] = "both"
    ) -> Predicate:
        """``self BETWEEN low AND high``; ``inclusive`` selects which ends are included."""
        if inclusive not in ("both", "left", "right", "neither"):
            raise PredicateError(f"inclusive={inclusive!r} is not one of both, left, right, neither")
        return Between(
            self, lit(low), lit(high), inclusive in ("both", "left"), inclusive in ("both", "right")
        )

    def is_null(self) -> Predicate:
        """``self IS NULL``."""
        return IsNull(self)

    def is_not_null(self) -> Predicate:
        """``self IS NOT NULL``."""
        return Not(IsNull(self))

    def is_nan(self) -> Predicate:
        """``isnan(self)``: TRUE for NaN, FALSE for other values, NULL for NULL."""
        return IsNan(self)

    def startswith(self, prefix: str | bytes) -> Predicate:
        """TRUE if the string starts with ``prefix``."""
        return Match("prefix", self, _text(prefix, "startswith"))

    def endswith(self, suffix: str | bytes) -> Predicate:
        """TRUE if the string ends with ``suffix``."""
        return Match("suffix", self, _text(suffix, "endswith"))

    def contains(self, text: str | bytes) -> Predicate:
        """TRUE if the string contains ``text``."""
        return Match("contains", self, _text(text, "contains"))

    def like(self, pattern: str, escape: str | None = "\\") -> Predicate:
        """SQL ``LIKE``: ``%`` matches any string, ``_`` one character; ``escape`` quotes the next one."""
        return _like(self, pattern, escape, ignore_case=False)

    def ilike(self, pattern: str, escape: str | None = "\\") -> Predicate:
        """Case-insensitive ``LIKE``."""
        return _like(self, pattern, escape, ignore_case=True)

    def cast(self, to: pa.DataType, zone: str = "UTC") -> Expr:
        """``CAST(self AS to)``; ``zone`` is the session time zone for timestamp casts."""
        return Cast(self, to, zone)

    def field(self, name: str) -> Expr:
        """A field of this struct column."""
        if not isinstance(self, Column):
            raise PredicateError("field() works on struct columns only")
        return Column((*self.path, name))

    def __getitem__(self, key: str | int) -> Expr:
        """A field of a struct, a value of a map, or an element of an array, counted from 0."""
        if isinstance(self, Column) and isinstance(key, str):
            return self.field(key)
        return Call("getitem", (self, lit(key)))

    def __add__(self, other: object) -> Expr:
        return Call("+", (self, lit(other)))

    def __radd__(self, other: object) -> Expr:
        return Call("+", (lit(other), self))

    def __sub__(self, other: object) -> Expr:
        return Call("-", (self, lit(other)))

    def __rsub__(self, other: object) -> Expr:
        return Call("-", (lit(other), self))

    def __mul__(self, other: object) -> Expr:
        return Call("*", (self, lit(other)))

    def __rmul__(self, other: object) -> Expr:
        return Call("*", (lit(other), self))

    def __truediv__(self, other: object) -> Expr:
        return Call("/", (self, lit(other)))

    def __rtruediv__(self, other: object) -> Expr:
        return Call("/", (lit(other), self))

    def __mod__(self, other: object) -> Expr:
        """The remainder; as in SQL, and unlike Python's, with the sign of the dividend."""
        return Call("%", (self, lit(other)))

    def __rmod__(self, other: object) -> Expr:
        return Call("%", (lit(other), self))

    def __and__(self, other: object) -> Predicate:
        return conjunction((condition(self), condition(other)))

    def __rand__(self, other: object) -> Predicate:
        return conjunction((condition(other), condition(self)))

    def __or__(self, other: object) -> Predicate:
        return disjunction((condition(self), condition(other)))

    def __ror__(self, other: object) -> Predicate:
        return disjunction((condition(other), condition(self)))

    def __invert__(self) -> Predicate:
        return Not(condition(self))

        # -- rendering ---------------------------------------------------------------------------

    def __str__(self) -> str:
        from skipstone.predicate.text import render

        try:
            return render(self)
        except RecursionError:
            return f"{type(self).__name__}(nested too deeply to render)"

    def __repr__(self) -> str:
        kind = "Predicate" if isinstance(self, Predicate) else "Expr"
        return f'{kind}("{self}")'


@functools.cache
def _fields_of(kind: Any) -> Callable[[Expr], tuple[object, ...]]:
    """A function that returns the values that tell two nodes of a class apart."""
    names = ("arg", "identity", "zone") if kind is InKeys else kind.__match_args__
    read = attrgetter(*names)
    return read if len(names) > 1 else lambda node: (read(node),)


P = ParamSpec("P")
R = TypeVar("R")


def _wrap_errors(write: Callable[P, R]) -> Callable[P, R]:
    """Wrap errors of other libraries and stack overflows in our own errors."""

    @functools.wraps(write)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return write(*args, **kwargs)
        except (SkipstoneError, ImportError):
            raise
        except RecursionError:
            raise too_deep() from None
        except Exception as error:
            form = write.__name__.removeprefix("to_")
            raise NotExpressibleError(f"predicate can't be converted to {form}: {error}") from error

    return guarded


class Predicate(Expr):
    """A condition that is TRUE, FALSE or NULL for each row; ``&``, ``|`` and ``~`` combine conditions.

    Examples:
        >>> import skipstone as sk
        >>> (sk.col("country") == "DE") & ~sk.col("amount").is_null()
        Predicate("country = 'DE' AND amount IS NOT NULL")
    """

    __slots__ = ("_hash",)
    _hash: int

    def __eq__(self, other: object) -> bool:  # type: ignore[override]
        if self is other:
            return True
        return isinstance(other, Predicate) and hash(self) == hash(other) and self.key() == other.key()

    def __ne__(self, other: object) -> bool:  # type: ignore[override]
        return not self == other

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            # Plans are cached by their predicate, which is looked up several times per query.
            found = hash(self.key())
            object.__setattr__(self, "_hash", found)
            return found

    def is_true(self) -> Predicate:
        """``(self) IS TRUE``: never NULL."""
        return Truth(self, True)

    def is_false(self) -> Predicate:
        """``(self) IS FALSE``: never NULL."""
        return Truth(self, False)

    def is_unknown(self) -> Predicate:
        """``(self) IS UNKNOWN``: TRUE where the condition is NULL."""
        return Truth(self, None)

    @_wrap_errors
    def to_sql(self, dialect: Dialect = "spark") -> str:
        """Convert to SQL text.

        Args:
            dialect: ``"spark"``, ``"hive"``, ``"trino"``, ``"presto"`` or ``"duckdb"``.

        Examples:
            >>> import skipstone as sk
            >>> print((sk.col("ts") >= sk.lit("2026-01-01")).to_sql("trino"))
            "ts" >= '2026-01-01'
        """
        from skipstone.predicate.sql.write import to_sql

        return to_sql(self, dialect)

    @_wrap_errors
    def to_arrow(self) -> pc.Expression:
        """Convert to a pyarrow expression with Spark's NaN semantics."""
        from skipstone.predicate.arrow import to_arrow

        return to_arrow(self)

    @_wrap_errors
    def to_polars(self) -> pl.Expr:
        """Convert to a Polars expression."""
        require("polars")
        from skipstone.predicate.polars import to_polars

        return to_polars(self)

    @_wrap_errors
    def to_iceberg(self) -> pyiceberg.expressions.BooleanExpression:
        """Convert to a pyiceberg expression."""
        require("pyiceberg")
        from skipstone.predicate.iceberg import to_iceberg

        return to_iceberg(self)

    @_wrap_errors
    def to_datafusion(self) -> datafusion.Expr:
        """Convert to a DataFusion expression."""
        require("datafusion")
        from skipstone.predicate.datafusion import to_datafusion

        return to_datafusion(self)

    @_wrap_errors
    def to_spark(self, schema: pa.Schema | None = None) -> pyspark.sql.Column:
        """Convert to a PySpark Column that is safe with Spark's own Parquet pruning.

        Comparisons of floats are written in forms that Spark doesn't push down; without ``schema`` every
        column that is compared with a number is treated as a float.
        """
        require("pyspark")
        from skipstone.predicate.spark import to_spark

        return to_spark(self, schema)

    @_wrap_errors
    def to_domain(self, schema: pa.Schema | None = None) -> ColumnDomain:
        """Convert to the exact ColumnDomain of the rows where this is TRUE, or raise.

        Without a schema each column gets the type of the literals it is compared with.
        """
        from skipstone.core.ir.domains import to_column_domain

        return to_column_domain(self, schema)


# -- values ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Column(Expr):
    """A column path: one part for a top-level column, more for a struct field."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Literal(Expr):
    """A typed constant; ``zone`` applies when a zoneless string or timestamp is compared with an instant."""

    scalar: pa.Scalar
    zone: str = "UTC"

    @property
    def missing(self) -> bool:
        """Whether the constant is NULL."""
        return not self.scalar.is_valid

    def __reduce__(self) -> tuple[object, ...]:
        # Pickled as an array: scalars pickle through Python objects, whose dates end in the year 9999.
        return (_unpickle_literal, (pa.repeat(self.scalar, 1), self.zone))


def _unpickle_literal(value: pa.Array, zone: str) -> Literal:
    return Literal(value[0], zone)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cast(Expr):
    """``CAST(arg AS type)``, or TRY_CAST if ``lenient``; ``zone`` is the session time zone."""

    arg: Expr
    type: pa.DataType
    zone: str = "UTC"
    lenient: bool = False


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Expr):
    """A function call by lower-case Spark name; operators are ``+ - * / %`` and ``negative``."""

    name: str
    args: tuple[Expr, ...]
    zone: str = "UTC"


# -- conditions --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constant(Predicate):
    """TRUE, FALSE or NULL for every row."""

    value: bool | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BooleanValue(Predicate):
    """A boolean value used as a condition, such as a bare boolean column."""

    arg: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Compare(Predicate):
    """``left op right``; ``<=>`` is null-safe equality.

    ``zone`` is the session time zone, in which zoneless values are compared with instants.
    """

    op: CompareOp
    left: Expr
    right: Expr
    zone: str = "UTC"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Between(Predicate):
    """``low <= arg <= high``, each end inclusive or not."""

    arg: Expr
    low: Expr
    high: Expr
    low_inclusive: bool = True
    high_inclusive: bool = True
    zone: str = "UTC"

    @property
    def ends(self) -> tuple[Compare, Compare]:
        """The two equivalent comparisons."""
        return (
            Compare(">=" if self.low_inclusive else ">", self.arg, self.low, self.zone),
            Compare("<=" if self.high_inclusive else "<", self.arg, self.high, self.zone),
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IsIn(Predicate):
    """``arg IN values``; with a NULL in ``values`` a non-match is NULL, as in SQL."""

    arg: Expr
    values: pa.Array
    zone: str = "UTC"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class InKeys(IsIn):
    """``arg IN values`` for the keys of a join, which are not NULL, and can be too many to display."""

    identity: object = None
    """What the values are compared by, since hashing millions takes time."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IsNull(Predicate):
    """``arg IS NULL``."""

    arg: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IsNan(Predicate):
    """``isnan(arg)``; NULL for NULL.

    A string is cast to a number, and any other type is an error; if ``lenient``, both are never NaN.
    """

    arg: Expr
    lenient: bool = False


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Match(Predicate):
    """A literal prefix, suffix or substring match."""

    kind: MatchKind
    arg: Expr
    text: str | bytes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Like(Predicate):
    """``arg LIKE pattern``; ``escape=None`` means no escape character."""

    arg: Expr
    pattern: str
    escape: str | None = "\\"
    ignore_case: bool = False


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Truth(Predicate):
    """``arg IS TRUE``, ``IS FALSE`` or (value None) ``IS UNKNOWN``."""

    arg: Predicate
    value: bool | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class And(Predicate):
    """Logical AND of all arguments."""

    args: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Or(Predicate):
    """Logical OR of all arguments."""

    args: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Not(Predicate):
    """Logical NOT; NULL stays NULL."""

    arg: Predicate


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Opaque(Predicate):
    """A condition that metadata can't judge.

    ``evaluate`` takes a record batch of the columns in ``args`` (a struct field is a column named by its
    dotted path) and returns a boolean array. Without ``evaluate`` the condition can't be scanned; pruning
    keeps every unit.
    """

    args: tuple[Column, ...]
    evaluate: Evaluate | None
    text: str


# -- building ----------------------------------------------------------------------------------


def col(name: str, *fields: str) -> Column:
    """Refer to a column, or to a field of a struct.

    Args:
        name: The column. Dots are part of the name.
        *fields: Fields of a struct, as in ``col("address", "city")``.

    Examples:
        >>> import skipstone as sk
        >>> sk.col("country").isin(["DE", "FR"])
        Predicate("country IN ('DE', 'FR')")
    """
    for part in (name, *fields):
        if not isinstance(part, str):
            raise PredicateError(f"{preview(part)} is not a column name", hint="pass a string")
    return Column((name, *fields))


def in_keys(arg: Expr, keys: KeySetLike) -> Predicate:
    """``arg`` equals one of the keys of a join; NULL among them is ignored."""
    values = drop_nulls(value_array(keys))
    return InKeys(arg, values, identity=structure_key(values))


def lit(value: object, type: pa.DataType | None = None, zone: str = "UTC") -> Expr:
    """Create a literal from a Python, NumPy or Arrow value; expressions are returned unchanged.

    Args:
        value: The value.
        type: The Arrow type; by default inferred from the value.
        zone: The time zone of a timestamp or string without a zone.

    Examples:
        >>> import skipstone as sk
        >>> sk.col("amount") > sk.lit(10)
        Predicate("amount > 10")
    """
    if isinstance(value, Expr):
        return value
    return Literal(to_scalar(value, type), zone)


def udf(fn: Callable[..., pa.Array], columns: Iterable[str | Column], name: str | None = None) -> Predicate:
    """Define a condition by a Python function; it is evaluated on rows and can't skip data.

    Args:
        fn: A function of one Arrow array per column that returns a boolean array.
        columns: The columns.
        name: The name of the function in reports.

    Examples:
        >>> import pyarrow.compute as pc
        >>> import skipstone as sk
        >>> odd = sk.udf(lambda ids: pc.equal(pc.bit_wise_and(ids, 1), 1), ["event_id"], name="odd")
        >>> sk.open("events").scan((sk.col("event_id") < 10) & odd).count()
        5
    """
    args = tuple(c if isinstance(c, Column) else col(c) for c in columns)
    text = name or getattr(fn, "__name__", "udf")
    return Opaque(args, _ColumnFunction(fn), f"{text}({', '.join('.'.join(a.path) for a in args)})")


@dataclass(frozen=True, slots=True)
class _ColumnFunction:
    """Applies a function of arrays to the columns of a batch; a class so that it can be pickled."""

    fn: Callable[..., pa.Array]

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        return self.fn(*batch.columns)


def _text(value: object, method: str) -> str | bytes:
    if not isinstance(value, (str, bytes)):
        raise TypeMismatchError(f"{method} needs a string, not {preview(value)}")
    return value


def _like(arg: Expr, pattern: str, escape: str | None, *, ignore_case: bool) -> Predicate:
    if not isinstance(pattern, str):
        raise TypeMismatchError(f"LIKE pattern must be a string, not {preview(pattern)}")
    if escape is not None and not (isinstance(escape, str) and len(escape) == 1):
        raise PredicateError(f"escape must be one character or None, not {preview(escape)}")
    return Like(arg, pattern, escape, ignore_case)


def too_deep() -> PredicateError:
    """Error for a tree that overflows Python's stack."""
    return PredicateError(
        "predicate is nested too deeply", hint="combine the conditions in one AND or OR, or use IN"
    )


def refuse_deep(read: Callable[P, R]) -> Callable[P, R]:
    """Refuse expressions of columns that overflow Python's stack."""

    @functools.wraps(read)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return read(*args, **kwargs)
        except RecursionError:
            hint = "compute parts of it in columns of their own"
            raise PredicateError("expression is nested too deeply", hint=hint) from None

    return guarded


def condition(value: object) -> Predicate:
    """Convert a boolean column or value to a condition."""
    if isinstance(value, Predicate):
        return value
    if isinstance(value, Literal):
        if value.missing:
            return Constant(None)
        if pa.types.is_boolean(value.scalar.type):
            return Constant(value.scalar.as_py())
        raise TypeMismatchError(f"{value} is not a condition", hint="compare it with a column")
    if isinstance(value, Expr):
        return BooleanValue(value)
    if value is None or isinstance(value, bool):
        return Constant(value)
    raise PredicateError(
        f"{preview(value)} is not a condition",
        hint="compare a column with it, or pass SQL to skipstone.parse",
    )


CLOCK = frozenset({"current_timestamp", "current_date", "localtimestamp"})
"""Functions of the current time."""


def has_calls(expr: Expr) -> bool:
    """Whether ``expr`` has a function, a cast or a nested column."""
    # A list that grows while it is iterated: each query checks its predicate, and calls are the cost.
    nodes: list[object] = [expr]
    for node in nodes:
        match node:
            case Call() | Cast():
                return True
            case Column(path):
                if len(path) > 1:
                    return True
            case Compare(_, left, right):
                nodes += (left, right)
            case Between(arg, low, high):
                nodes += (arg, low, high)
            case And(args) | Or(args):
                nodes += args
            case Predicate():
                nodes += node.children()
    return False


def rewrite(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Rebuild ``expr`` from the bottom up with each node replaced by ``change(node)``.

    Columns of opaque conditions are left alone.
    """
    done: dict[int, Expr] = {}
    stack = [expr]  # not recursive: chains of CASE can be deep
    while stack:
        node = stack[-1]
        children = () if isinstance(node, Opaque) else node.children()
        waiting = [child for child in children if id(child) not in done]
        stack += waiting
        if not waiting:
            stack.pop()
            done[id(node)] = change(_with_children(node, done))
    return done[id(expr)]


def _with_children(node: Expr, new: dict[int, Expr]) -> Expr:
    values: dict[str, object] = {}
    for name in () if isinstance(node, Opaque) else node.__match_args__:
        value = getattr(node, name)
        if isinstance(value, Expr):
            values[name] = new[id(value)]
        elif isinstance(value, tuple) and any(isinstance(item, Expr) for item in value):
            values[name] = tuple([new[id(item)] for item in value])
    return replace(node, **values) if values else node  # type: ignore[type-var]


def conjunction(args: Iterable[Predicate]) -> Predicate:
    """``args`` joined by AND, flattened; TRUE if empty."""
    return _join(And, args, empty=True)


def disjunction(args: Iterable[Predicate]) -> Predicate:
    """``args`` joined by OR, flattened; FALSE if empty."""
    return _join(Or, args, empty=False)


def _join(node: type[And | Or], args: Iterable[Predicate], *, empty: bool) -> Predicate:
    flat: list[Predicate] = []
    for arg in args:
        flat.extend(arg.args if isinstance(arg, node) else (arg,))
    if not flat:
        return Constant(empty)
    return flat[0] if len(flat) == 1 else node(tuple(flat))


@structure_key.register
def _(value: Expr) -> object:
    return value.key()
