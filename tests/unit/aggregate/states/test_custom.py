import math
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone.aggregate.states.custom import Custom, finish_custom
from skipstone.aggregate.states.state import RowSelection
from skipstone.errors import TypeMismatchError, UsageError
from tests.unit.aggregate.states._cuts import at_once, in_pieces, one_group, tables

X, Y = ("x",), ("y",)


class Product:
    """How many rows there are, and the sum of x·y modulo a prime; changes its states in place."""

    def init(self) -> dict[str, int]:
        return {"rows": 0, "sum": 0}

    def update(self, state: dict[str, int], batch: pa.RecordBatch) -> dict[str, int]:
        assert isinstance(batch, pa.RecordBatch)
        assert batch.schema.names == ["x", "y"]
        assert batch.num_rows > 0
        state["rows"] += batch.num_rows
        pairs = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        state["sum"] = (state["sum"] + sum((x or 0) * (y or 0) for x, y in pairs)) % 97
        return state

    def merge(self, one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
        one["rows"] += other.pop("rows")
        one["sum"] = (one["sum"] + other.pop("sum")) % 97
        return one

    def finish(self, state: dict[str, int]) -> int:
        return state.pop("rows") * 100 + state.pop("sum")


def product() -> Custom:
    return Custom((X, Y), ("x", "y"), Product(), "product")


@settings(max_examples=40)
@given(data=st.data(), seed=st.integers(0, 99))
def test_neither_cuts_nor_order_matter(data: st.DataObject, seed: int) -> None:
    table = data.draw(tables(x="int8", y="int64"))
    measure = product()
    whole, parts = at_once(measure, table), in_pieces(measure, table, seed)
    found = finish_custom(measure, whole, pa.int64())
    assert finish_custom(measure, parts, pa.int64()) == found
    # Answers may be asked for while states are still added to.
    assert finish_custom(measure, whole, pa.int64()) == found
    assert sum(found.to_pylist()) // 100 >= len(table)


def test_states_are_not_changed_by_putting_them_together() -> None:
    measure = product()
    state = measure.join([one_group(measure, pa.array([n]), pa.array([1])) for n in range(3)])
    for _ in range(2):
        merged = measure.fold(state, np.array([2, 0, 1]), np.array([0, 1]))
        assert finish_custom(measure, merged).to_pylist() == [102, 201]


class Texts:
    """The values in the order in which they were put together."""

    def init(self) -> str:
        return ""

    def update(self, state: str, batch: pa.RecordBatch) -> str:
        return state + "".join(batch.column("a.b").to_pylist())

    def merge(self, one: str, other: str) -> str:
        return f"({one}{other})"

    def finish(self, state: str) -> pa.Scalar:
        return pa.scalar(state)


def test_states_are_merged_in_their_order() -> None:
    measure = Custom((("a", "b"),), ("a.b",), Texts(), "texts")
    assert measure.columns == (("a", "b"),)
    column = pa.chunked_array([pa.array([{"b": "p"}]), pa.array([{"b": "q"}, {"b": "r"}])])
    state = measure.update(RowSelection(pa.table({"a": column}), np.array([0, 1, 2])))
    assert state == ["p", "q", "r"]
    assert measure.fold(state, np.array([1, 2, 0]), np.array([0])) == ["((qr)p)"]
    assert finish_custom(measure, state) == pa.array(["p", "q", "r"])


def test_nothing_and_no_columns() -> None:
    assert finish_custom(
        product(), one_group(product(), pa.array([], pa.int8()), pa.array([], pa.int8()))
    ).to_pylist() == [0]

    class Count(Texts):
        def update(self, state: str, batch: pa.RecordBatch) -> str:
            return state + str(batch.num_rows)

    measure = Custom((), (), Count(), "count")
    assert measure.update(RowSelection(pa.table({"x": [1, 2, 3]}), np.array([0, 1]))) == ["1", "2"]


def test_the_object_is_checked() -> None:
    class Half:
        merge = 3

        def update(self) -> None: ...

        def finish(self) -> None: ...

    with pytest.raises(UsageError, match=r"aggregate half has no init, merge \(use an object with init"):
        Custom((X,), ("x",), Half(), "half")


class Broken(Product):
    def __init__(self, method: str, error: Exception) -> None:
        self.method, self.error = method, error

    def __getattribute__(self, name: str) -> Any:
        if name == object.__getattribute__(self, "method"):
            return self._fail
        return object.__getattribute__(self, name)

    def _fail(self, *_: Any) -> None:
        raise self.error


@pytest.mark.parametrize("method", ["init", "update", "merge", "finish"])
def test_failures_name_the_aggregate(method: str) -> None:
    cause = ZeroDivisionError("by nought")
    measure = Custom((X, Y), ("x", "y"), Broken(method, cause), "mine")

    def run(measure: Custom) -> None:
        state = measure.update(RowSelection(pa.table({"x": [1, 2], "y": [3, 4]}), np.array([0, 1])))
        finish_custom(measure, measure.fold(state, np.array([0, 1]), np.array([0])))

    with pytest.raises(
        UsageError, match=f"{method} of aggregate mine failed: ZeroDivisionError: by nought"
    ) as raised:
        run(measure)
    assert raised.value.__cause__ is cause
    ours = TypeMismatchError("of our own")
    with pytest.raises(TypeMismatchError) as same:
        run(Custom((X, Y), ("x", "y"), Broken(method, ours), "mine"))
    assert same.value is ours


def test_states_that_can_not_be_copied() -> None:
    class Locked(Product):
        def init(self) -> Any:
            return {"rows": 0, "sum": 0, "lock": threading.Lock()}

    measure = Custom((X, Y), ("x", "y"), Locked(), "locked")
    with pytest.raises(UsageError, match="state of aggregate locked can't be copied: TypeError"):
        finish_custom(measure, one_group(measure, pa.array([1]), pa.array([1])))


class Given(Texts):
    def __init__(self, *values: Any) -> None:
        self.values = iter(values)

    def finish(self, _: str) -> Any:
        return next(self.values)


def test_types_of_answers() -> None:
    def answers(type: pa.DataType | None, *values: Any) -> pa.Array:
        return finish_custom(Custom((), (), Given(*values), "given"), [""] * len(values), type)

    assert answers(None, 1, None) == pa.array([1, None])
    assert answers(pa.float64(), 1, np.float32(0.5), None) == pa.array([1.0, 0.5, None])
    assert math.isnan(answers(pa.float64(), math.nan)[0].as_py())
    assert pc.sum(answers(pa.decimal128(38, 0), 2**80)).as_py() == 2**80
    with pytest.raises(
        UsageError, match="finish of aggregate given returned values that are not of type int32"
    ):
        answers(pa.int32(), "a")
    with pytest.raises(UsageError, match="not of one type"):
        answers(None, "a", 1)
    with pytest.raises(UsageError, match="not of type int8"):
        answers(pa.int8(), 1000)
