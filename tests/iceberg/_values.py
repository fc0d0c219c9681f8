"""Random columns and values for tables: a small pool for each column, so that rows meet again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tests.iceberg._table import Columns
from tests.iceberg._types import DAY_MICROS, Field, List, Map, Struct, Type, arrow_type
from tests.property._lakes import ROW_ID
from tests.property._layouts import FAMILIES, Family, add_nulls, arrange

_BY_NAME = {f.name: f for f in FAMILIES}
_KINDS = {
    "boolean": "flag",
    "int": "i32",
    "long": "i64",
    "float": "f32",
    "double": "f64",
    "date": "day",
    "time": "clock_us",
    "timestamp": "ts_us",
    "timestamptz": "ts_us_tz",
    "timestamp_ns": "ts_ns",
    "timestamptz_ns": "ts_ns",
    "string": "text",
    "binary": "blob",
    "fixed[4]": "fixed",
    "decimal(4, 1)": "dec4",
    "decimal(9, 2)": "dec9",
    "decimal(18, 6)": "dec18",
    "decimal(38, 10)": "dec38",
}
NANO_TYPES = ("timestamp_ns", "timestamptz_ns")
WIDER = {
    "int": ["long"],
    "float": ["double"],
    "decimal(4, 1)": ["decimal(6, 1)", "decimal(20, 1)"],
    "decimal(9, 2)": ["decimal(18, 2)", "decimal(38, 2)"],
    "decimal(18, 6)": ["decimal(38, 6)"],
}
_NAMES = ("a", "b", "c", "d.ot", "sp ace", "ünï", "A", "select", "x%2F")


def family(type: str) -> Family:
    """How to make values of a type."""
    if type == "uuid":  # compared with bytes
        return Family("blob", pa.binary(), lambda rng, size: [rng.randbytes(16) for _ in range(size)])
    if type in _KINDS:
        found = _BY_NAME[_KINDS[type]]
        return Family(found.name, arrow_type(type), found.pool)
    kinds = [k for k in _KINDS if k.startswith("decimal") and k.endswith(type.rpartition(",")[2])]
    return Family("decimal", arrow_type(type), _BY_NAME[_KINDS[kinds[0]]].pool)


def transforms(type: Type, rng: random.Random) -> list[str]:
    """The transforms that a source of this type may have."""
    if not isinstance(type, str):
        return []
    found = ["identity", "identity"]
    if type not in ("boolean", "float", "double"):
        found += [f"bucket[{rng.choice([2, 3, 7])}]"]
    if type in ("int", "long", "string", "binary") or type.startswith("decimal"):
        found += [f"truncate[{rng.choice([1, 2, 5, 10])}]"] * 2
    if type == "date":
        found += ["day", "month", "year"]
    if type.startswith("timestamp"):
        found += ["day", "month", "year", "hour", "day"]
    return found


class Values:
    """Makes columns, pools for them, and rows."""

    def __init__(self, rng: random.Random, *, readable: bool) -> None:
        self.rng = rng
        self.readable = readable
        self.pools: dict[int, list[Any]] = {}
        self.rows_made = 0

    def columns(self, version: int) -> list[tuple[str, Any]]:
        rng = self.rng
        names = rng.sample(_NAMES, len(_NAMES)) if rng.random() < 0.4 else list("abcdefgh")
        columns: list[tuple[str, Any]] = [
            (name, self.random_type(version)) for name in names[: rng.randrange(2, 6)]
        ]
        if rng.random() < 0.4:
            inner = {f"f{n}": self.random_type(version) for n in range(rng.randrange(1, 4))}
            columns.append(("st", inner))
        if rng.random() < 0.25:
            kinds: list[Any] = [["int"], [{"n": "long", "w": "string"}]]
            columns.append(("items", kinds[0] if self.readable else rng.choice(kinds)))
        if rng.random() < 0.15:
            columns.append(("tags", ("string", "long")))
        if rng.random() < 0.15:
            columns.append(("u", "uuid"))
        rng.shuffle(columns)
        columns.insert(rng.randrange(len(columns) + 1), (ROW_ID, "long"))
        return columns

    def random_type(self, version: int) -> str:
        kinds = [k for k in _KINDS if version > 2 or k not in NANO_TYPES]
        favourites = ["int", "long", "string", "string", "double", "date", "timestamp", "decimal(9, 2)"]
        return self.rng.choice([*kinds, *favourites])

    def fill(self, schema: Sequence[Field]) -> None:
        """Make a pool for each column that has none."""
        for f in all_leaves(schema):
            if f.id not in self.pools and f.name != ROW_ID and isinstance(f.type, str):
                self.pools[f.id] = self.pool(f.type)

    def pool(self, type: str) -> list[Any]:
        rng = self.rng
        pool = family(type).pool(rng, rng.choice([1, 3, 5, 8, 20]))
        return pool if len(pool) < 12 else rng.sample(pool, 12)

    def _values(self, type: Type, id: int, rows: int) -> list[Any]:
        rng = self.rng
        match type:
            case Struct(fields):
                parts = {f.id: self._values(f.type, f.id, rows) for f in fields}
                made = [{id: values[n] for id, values in parts.items()} for n in range(rows)]
                return add_nulls(rng, made) if rows else []
            case List(inner, element):
                flat = self._values(element, inner, rows * 3)
                return add_nulls(rng, [flat[n * 3 : n * 3 + rng.randrange(4)] for n in range(rows)])
            case Map(_, _, inner, value):
                flat = self._values(value, inner, rows * 3)
                return add_nulls(
                    rng, [[(f"k{k}", flat[n * 3 + k]) for k in range(rng.randrange(4))] for n in range(rows)]
                )
        pool = self.pools.setdefault(id, self.pool(type))
        return arrange(rng, self.grown(type, pool), rows)

    def grown(self, type: str, pool: list[Any]) -> list[Any]:
        """The pool as a wider type has it."""
        if type.startswith("timestamp") and all(abs(v) < 10**6 for v in pool):
            return [v * DAY_MICROS * (1000 if type in NANO_TYPES else 1) for v in pool]
        return pool

    def rows(self, count: int, fields: Sequence[Field]) -> Columns:
        """Some new rows."""
        made: Columns = {}
        for f in fields:
            if f.name == ROW_ID:
                made[f.id] = [*range(self.rows_made, self.rows_made + count)]
            else:
                made[f.id] = self._values(f.type, f.id, count)
        self.rows_made += count
        return made


def all_leaves(fields: Sequence[Field]) -> list[Field]:
    """Every primitive field, also below lists and maps."""
    out = []
    for f in fields:
        match f.type:
            case Struct(inner):
                out += all_leaves(inner)
            case List(id, element):
                out += all_leaves([Field(id, "element", element)])
            case Map(key_id, key, value_id, value):
                out += all_leaves([Field(key_id, "key", key), Field(value_id, "value", value)])
            case _:
                out.append(f)
    return out
