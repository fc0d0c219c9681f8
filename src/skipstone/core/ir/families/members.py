"""IN lists, from one value to millions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain import Domain
from skipstone.core.domain.keys import (
    Kind,
    array_keys,
    is_binary,
    is_ordered,
    is_text,
    key_space,
    storage_type,
)
from skipstone.core.domain.spans import ByteSpans, NumberSpans
from skipstone.core.ir.families.compare import matching
from skipstone.core.ir.literals import float_readings, is_nan
from skipstone.core.ir.lower import Lowering, lower_node, null_for_null
from skipstone.core.ir.nodes import (
    Decided,
    Leaf,
    Node,
    Reason,
)
from skipstone.core.ir.operands import CantJudge, Value
from skipstone.predicate import tree


@lower_node.register
def _(predicate: tree.IsIn, to: Lowering) -> Node:
    operand = to.column(predicate.arg)
    if isinstance(operand, Value):
        return _value_in(predicate, operand)
    ref, values = operand, predicate.values
    if len(values) == 0:
        return Decided(False)
    if not is_ordered(ref.out):
        raise CantJudge(Reason.TYPES, f"values of type {ref.out} are compared row by row")
    may, sure = _members(ref.out, _present(values), predicate.zone)
    misses = Domain.not_null(ref.out) - sure
    if values.null_count == 0:
        return null_for_null(ref, may, predicate, false=misses)
    # A NULL in the list turns every miss into NULL.
    return Leaf(ref, may, Domain.none(ref.out), misses | Domain.only_null(ref.out), str(predicate))


def _present(values: pa.Array) -> pa.Array:
    """The values that are not NULL; Arrow has no filter for views, so those are copied first."""
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.large_string())
    elif pa.types.is_binary_view(values.type):
        values = values.cast(pa.large_binary())
    return values.drop_null()


def _members(type: pa.DataType, values: pa.Array, zone: str) -> tuple[Domain, Domain]:
    """The column's values that may equal one of ``values``, and those that surely do."""
    given = storage_type(values.type)
    if key_space(type).kind is not Kind.FLOAT or pa.types.is_floating(given):
        exact = _equal(type, values, zone)
        return exact, exact
    readings = [float_readings(type, scalar) for scalar in values]
    exact, rounded = (
        _equal(type, pa.array([r[at].as_py() for r in readings], pa.float64()), zone) for at in (0, -1)
    )
    return exact | rounded, exact & rounded


def _equal(type: pa.DataType, values: pa.Array, zone: str) -> Domain:
    given, own = storage_type(values.type), storage_type(type)
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if given == own or (is_text(given) and is_text(own)):
        return Domain.values(type, values)
    if is_binary(given) and is_binary(own):
        # By bytes, not by a cast: a value of another length is no error, it just equals nothing.
        return Domain.of_spans(type, ByteSpans.of_points(key_space(type), array_keys(given, values)))
    if pa.types.is_integer(given) and pa.types.is_integer(own):
        keys = array_keys(given, values)
        assert isinstance(keys, np.ndarray)
        space = key_space(type)
        inside = keys[(keys >= space.low) & (keys <= space.high)]
        return Domain.of_spans(type, NumberSpans.of_points(space, inside.astype(space.dtype)))
    if pa.types.is_float64(given) and pa.types.is_floating(own):
        nan = pc.is_nan(values)
        points = values.filter(pc.invert(nan)).to_numpy(zero_copy_only=False)
        spans = NumberSpans.of_points(key_space(type), points)
        return Domain.of_spans(type, spans, nans=bool(pc.any(nan).as_py()))
    # Coerced one by one: values of another type each have a place of their own.
    found = [matching("=", type, Value(scalar, zone)) for scalar in values]
    pairs = [pair for domain in found for pair in domain.spans.pairs()]
    space = key_space(type)
    kind = ByteSpans if space.kind is Kind.BYTES else NumberSpans
    return Domain.of_spans(type, kind.of(space, pairs), nans=any(d.nans for d in found))  # type: ignore[arg-type]


def _value_in(predicate: tree.IsIn, value: Value) -> Node:
    if len(predicate.values) == 0:
        return Decided(False)
    if not value.scalar.is_valid:
        return Decided(None)
    type = value.scalar.type
    domain, _ = _members(type, _present(predicate.values), predicate.zone)
    if domain.nans if is_nan(value.scalar) else domain.contains(value.scalar):
        return Decided(True)
    return Decided(None if predicate.values.null_count else False)
