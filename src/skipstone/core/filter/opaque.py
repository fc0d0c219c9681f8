"""Conditions that only the caller's or another library's function can answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from skipstone.core.filter.rows import Path, Rows
from skipstone.core.filter.truth import Truth
from skipstone.errors import NotExpressibleError, PredicateError, SkipstoneError
from skipstone.predicate import tree


def opaque_test(leaf: tree.Opaque, paths: tuple[Path, ...]) -> Callable[[Rows], Truth]:
    """Calls the leaf's function with the columns at ``paths``, named as the leaf names them."""
    evaluate = leaf.evaluate
    if evaluate is None:
        raise NotExpressibleError(
            f"the rows can't be tested for {leaf}: it came without a function that computes it",
            hint="write it as SQL text, or give the function with skipstone.udf",
        )
    names = [".".join(arg.path) for arg in leaf.args]

    def truth(rows: Rows) -> Truth:
        arrays = [rows.raw(path) for path in paths]
        if arrays:
            batch = pa.record_batch(arrays, names)
        else:  # a batch without columns still has rows
            batch = pa.record_batch(pa.StructArray.from_arrays([pa.nulls(rows.count)], ["none"])).select([])
        try:
            answer = evaluate(batch)
        except SkipstoneError:
            raise
        except Exception as error:
            raise PredicateError(f"{leaf} failed: {type(error).__name__}: {error}") from error
        return Truth.of(_checked(leaf, answer, rows.count))

    return truth


def _checked(leaf: tree.Opaque, answer: Any, rows: int) -> pa.Array:
    if isinstance(answer, pa.ChunkedArray):
        answer = answer.combine_chunks()
    if not isinstance(answer, pa.Array):
        raise PredicateError(
            f"{leaf} gave a {type(answer).__name__}", hint="return a pyarrow array of booleans"
        )
    if pa.types.is_null(answer.type):
        answer = answer.cast(pa.bool_())
    if not pa.types.is_boolean(answer.type):
        raise PredicateError(f"{leaf} gave {answer.type}", hint="return a pyarrow array of booleans")
    if len(answer) != rows:
        raise PredicateError(f"{leaf} gave {len(answer)} answers for {rows} rows")
    return answer
