"""Random lakes, all from one seed: files of several writers, partitions, schemas that have evolved."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.property._layouts import FAMILIES, WRITERS, Family, Table, Writer, add_nulls, arrange, make_array
from tests.property._oracle import read

BY_NAME = {family.name: family for family in FAMILIES}
BY_WRITER = {writer.name: writer for writer in WRITERS}
# Types that a reader of several files can give one meaning to, whatever the writer.
LAKE_FAMILIES = tuple(
    BY_NAME[name]
    for name in (
        *("i8", "i16", "i32", "i64", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "f64"),
        *("flag", "text", "text", "text2", "view", "dict", "blob", "fixed", "day", "clock_us", "ts_ms"),
        *("ts_us", "ts_ns", "ts_us_tz", "ts_ns_tz", "dec9", "dec18", "dec38"),
    )
)
# Types that every writer can hold.
PLAIN_FAMILIES = tuple(
    BY_NAME[name]
    for name in (
        "i16",
        "i32",
        "i64",
        "u8",
        "u32",
        "f32",
        "f64",
        "flag",
        "text",
        "text2",
        "day",
        "ts_us",
        "dec9",
    )
)
ROW_ID = "rid"
"""A number that no other row of the lake has."""
PARTITION_KINDS: dict[str, tuple[Family, list[Any]]] = {
    "int": (BY_NAME["i32"], [-3, 0, 7, 12, 2026]),
    "text": (BY_NAME["text"], ["a", "a b", "x=y", "50%", "é/漢", "it's", "q?#&[1]{2}", "A", "%41", "z:z"]),
    "date": (BY_NAME["day"], [20454, 20455, 20500, 0]),
}
# What Spark and Hive write percent-encoded in the name of a directory.
_ESCAPED = {*map(chr, range(1, 32)), *"\"#%'*/:=?\\\x7f{[]^"}


@dataclass(frozen=True)
class LakeFile:
    """One file: its place below the root, its partition values, and how it was written."""

    path: str
    partition: dict[str, Any]
    words: str


@dataclass
class Lake:
    """A random lake on disk."""

    root: Path
    files: list[LakeFile]
    made: Table
    """Pools for predicates; its table is empty."""
    schema: pa.Schema
    """The schema the data was made for."""
    explicit: bool
    """Whether the lake is opened with that schema, rather than with what its files say."""
    partitions: dict[str, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The lake in a few lines."""
        lines = [f"schema {'given' if self.explicit else 'inferred'}, partitions {self.partitions}"]
        return "\n    ".join([*lines, *(f"{file.path}: {file.words}" for file in self.files)])


# -- making one --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    field: pa.Field
    family: Family | None = None
    pool: Sequence[Any] = ()
    make: Callable[[random.Random, int], pa.Array] | None = None

    def array(self, rng: random.Random, rows: int) -> pa.Array:
        if self.make is not None:
            return self.make(rng, rows)
        assert self.family is not None
        return make_array(self.field.type, arrange(rng, list(self.pool), rows))


def random_lake(seed: str, root: Path) -> Lake:
    """The lake of this seed: the same at every call."""
    rng = random.Random(seed)
    columns = _columns(rng)
    made = _pools(columns)
    partitions = _partitions(rng)
    schema = pa.schema([c.field for c in columns])
    for name, kind in partitions.items():
        schema = schema.append(pa.field(name, PARTITION_KINDS[kind][0].type))
        made.pools[name,] = (PARTITION_KINDS[kind][0], PARTITION_KINDS[kind][1])
    evolved, count = rng.random() < 0.6, rng.choice([1, 1, 2, 2, 3, 4, 6])
    explicit = rng.random() < 0.5
    # INT96 and old timestamps are instants: files that disagree about that make no lake.
    instants = count == 1 and not explicit
    stored = [name for name in partitions if rng.random() < 0.25]
    files = []
    for number in range(count):
        values = {n: _partition_value(rng, kind) for n, kind in partitions.items()}
        folder = "/".join(f"{name}={_directory(partitions[name], value)}" for name, value in values.items())
        place = f"{folder}/" * bool(folder) + f"part-{rng.randrange(100):02d}-{number}.parquet"
        table = _file_table(rng, columns, number, evolved)
        for name in stored:  # the directory wins over it
            other = PARTITION_KINDS[partitions[name]]
            array = make_array(other[0].type, arrange(rng, other[1], table.num_rows))
            table = table.add_column(rng.randrange(table.num_columns + 1), name, array)
        words = _write(rng, table, made, schema, root / place, instants=instants)
        files.append(LakeFile(place, values, words))
    if rng.random() < 0.2:  # what Spark leaves beside its files
        (root / "_SUCCESS").touch()
        (root / f".{Path(files[0].path).name}.crc").write_bytes(b"crc")
    files.sort(key=lambda f: f.path.encode())
    return Lake(root, files, made, schema, explicit, partitions)


def _columns(rng: random.Random) -> list[_Column]:
    plain = rng.random() < 0.35
    chosen = {f.name: f for f in rng.sample(PLAIN_FAMILIES if plain else LAKE_FAMILIES, rng.randrange(2, 6))}
    columns = []
    for family in chosen.values():
        pool = family.pool(rng, rng.choice([1, 3, 8, 20, 60]))
        name = "d.ot" if rng.random() < 0.03 else family.name
        columns.append(_Column(pa.field(name, family.type), family, pool))
        if rng.random() < 0.2:
            columns.append(_Column(pa.field(f"{family.name}_b", family.type), family, pool))
    if not plain and rng.random() < 0.5:
        columns.append(_struct(rng))
    if not plain and rng.random() < 0.4:
        columns.append(_Column(pa.field("items", pa.list_(pa.int32())), make=_lists))
    if not plain and rng.random() < 0.3:
        columns.append(_Column(pa.field("tags", pa.map_(pa.string(), pa.int64())), make=_maps))
    if not plain and rng.random() < 0.25:
        part = pa.struct([("n", pa.int64()), ("w", pa.string())])
        columns.append(_Column(pa.field("parts", pa.list_(part)), make=_parts))
    columns = list({c.field.name: c for c in columns}.values())
    rng.shuffle(columns)
    at = rng.randrange(len(columns) + 1)
    columns.insert(at, _Column(pa.field(ROW_ID, pa.int64())))
    return columns


def _struct(rng: random.Random) -> _Column:
    names = rng.sample(["i32", "i64", "f64", "text", "ts_us", "dec9", "flag"], 2)
    pools = [(BY_NAME[name], BY_NAME[name].pool(rng, 12)) for name in names]
    type = pa.struct([(family.name, family.type) for family, _ in pools])

    def make(rng: random.Random, rows: int) -> pa.Array:
        parts = [make_array(family.type, arrange(rng, pool, rows)) for family, pool in pools]
        mask = [v is None for v in add_nulls(rng, [0] * rows)]
        return pa.StructArray.from_arrays(parts, fields=list(type), mask=pa.array(mask, pa.bool_()))

    return _Column(pa.field("st", type), None, pools, make)


def _lists(rng: random.Random, rows: int) -> pa.Array:
    values = [[rng.choice([None, *range(9)]) for _ in range(rng.randrange(4))] for _ in range(rows)]
    return pa.array(add_nulls(rng, values), pa.list_(pa.int32()))


def _maps(rng: random.Random, rows: int) -> pa.Array:
    values = [[(f"k{n}", rng.choice([None, n, 2**40])) for n in range(rng.randrange(4))] for _ in range(rows)]
    return pa.array(add_nulls(rng, values), pa.map_(pa.string(), pa.int64()))


def _parts(rng: random.Random, rows: int) -> pa.Array:
    type = pa.list_(pa.struct([("n", pa.int64()), ("w", pa.string())]))
    one = [None, {"n": 1, "w": "a" * 30}, {"n": None, "w": ""}, {"n": 7, "w": None}]
    values = [[rng.choice(one) for _ in range(rng.randrange(4))] for _ in range(rows)]
    return pa.array(add_nulls(rng, values), type)


def _pools(columns: Sequence[_Column]) -> Table:
    made = Table(pa.table({}))
    for column in columns:
        name = column.field.name
        if column.family is not None:
            made.pools[name,] = (column.family, list(column.pool))
        elif name == "st":
            made.pools |= {(name, family.name): (family, pool) for family, pool in column.pool}
            made.nested.append((name,))
        elif name == ROW_ID:
            made.pools[name,] = (BY_NAME["i64"], [0, 5, 33, 70, 10_000, 10_020, 20_001, 30_100])
        else:
            made.nested.append((name,))
    return made


def _partitions(rng: random.Random) -> dict[str, str]:
    if rng.random() < 0.6:
        return {}
    kinds = [rng.choice(list(PARTITION_KINDS)) for _ in range(rng.choice([1, 1, 2]))]
    return {f"p_{kind}{'_2' * (kind in kinds[:at])}": kind for at, kind in enumerate(kinds)}


def _partition_value(rng: random.Random, kind: str) -> Any:
    return None if rng.random() < 0.15 else rng.choice(PARTITION_KINDS[kind][1][: rng.choice([2, 4, 10])])


def _directory(kind: str, value: Any) -> str:
    if value is None:
        return "__HIVE_DEFAULT_PARTITION__"
    if kind == "date":
        return (dt.date(1970, 1, 1) + dt.timedelta(days=value)).isoformat()
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in str(value))


def _file_table(rng: random.Random, columns: Sequence[_Column], number: int, evolved: bool) -> pa.Table:
    rows = rng.choice([0, 1, 5]) if rng.random() < 0.08 else rng.randrange(20, 160)
    fields, arrays = [], []
    order = rng.sample(columns, len(columns)) if evolved and rng.random() < 0.4 else columns
    for column in order:
        if column.field.name == ROW_ID:
            array = pa.array(range(number * 10_000, number * 10_000 + rows), pa.int64())
        elif evolved and rng.random() < 0.15:
            continue
        else:
            array = column.array(rng, rows)
            if evolved and rng.random() < 0.4:
                array = _narrowed(rng, array)
        nullable = array.null_count > 0 or rng.random() < 0.7
        fields.append(pa.field(column.field.name, array.type, nullable=nullable))
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


# -- types of earlier schemas ------------------------------------------------------------------

_TEXTS = (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()))
_BYTES = (pa.binary(), pa.large_binary(), pa.binary_view())
VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def narrower(type: pa.DataType) -> list[pa.DataType]:
    """Types that a column of ``type`` may have had before."""
    if pa.types.is_signed_integer(type):
        return [t for t in (pa.int8(), pa.int16(), pa.int32()) if t.bit_width < type.bit_width]
    if pa.types.is_unsigned_integer(type):
        return [t for t in (pa.uint8(), pa.uint16(), pa.uint32()) if t.bit_width < type.bit_width]
    if pa.types.is_float64(type):
        return [pa.float32()]
    if pa.types.is_timestamp(type):
        units = ["s", "ms", "us", "ns"]
        return [pa.timestamp(u, type.tz) for u in units[1 : units.index(type.unit)]]
    if pa.types.is_decimal128(type) and type.precision > 9:
        return [pa.decimal128(9, min(2, type.scale)), pa.decimal128(type.precision - 1, type.scale)]
    if pa.types.is_list(type):
        return [pa.list_(item) for item in narrower(type.value_type)]
    return [t for group in (_TEXTS, _BYTES) if type in group for t in group if t != type]


def _narrowed(rng: random.Random, array: pa.Array) -> pa.Array:
    """The array in an earlier type, if that loses nothing; a struct with less fields, in another order."""
    if pa.types.is_struct(array.type):
        fields = rng.sample(list(array.type), rng.randrange(1, array.type.num_fields + 1))
        parts = [pc.struct_field(array, [array.type.get_field_index(f.name)]) for f in fields]
        # Not every layout of texts can be written inside a struct.
        parts = [part if part.type in _TEXTS else _narrowed(rng, part) for part in parts]
        kept = [pa.field(f.name, part.type) for f, part in zip(fields, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=kept, mask=array.is_null())
    types = narrower(array.type)
    if not types:
        return array
    try:
        old = cast(array, rng.choice(types))
        return old if same(cast(old, array.type), array) else array
    except pa.ArrowInvalid:
        return array


def _fits(file: pa.DataType, lake: pa.DataType, instants: bool) -> bool:
    if instants and pa.types.is_timestamp(file) and pa.types.is_timestamp(lake):
        return True
    if pa.types.is_struct(file) and pa.types.is_struct(lake):
        parts = {part.name: part.type for part in lake}
        return all(_fits(part.type, parts[part.name], instants=False) for part in file)
    return file == lake or file in narrower(lake)


# -- writing -----------------------------------------------------------------------------------


def _write(
    rng: random.Random, table: pa.Table, made: Table, schema: pa.Schema, path: Path, *, instants: bool
) -> str:
    """Write by a random writer, or by pyarrow what that one can't hold; how it was done, in words."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A dot in a name would be taken for a path.
    pools = {p: v for p, v in made.pools.items() if p[0] in table.column_names and "." not in p[0]}
    part = Table(table, pools, [])
    writer = _writer(rng, part)
    written = writer.write(rng, part, path)
    if written.path != path:
        written.path.rename(path)
    if _holds(path, table, schema, instants):
        return written.words
    path.unlink()
    settings: dict[str, Any] = {
        "row_group_size": rng.choice([30, 64, 1000]),
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "write_page_index": rng.random() < 0.7,
        "max_rows_per_page": rng.choice([5, 13, 40]),
        "write_batch_size": rng.choice([3, 8, 1024]),
        "use_dictionary": rng.random() < 0.5,
    }
    pq.write_table(table, path, **settings)
    return f"pyarrow {settings}"


def _holds(path: Path, table: pa.Table, schema: pa.Schema, instants: bool) -> bool:
    """Whether the file has kept types that the lake's schema can be an evolution of."""
    try:
        types = {f.name: f.type for f in read(path).schema}
    except (OSError, pa.ArrowInvalid):  # a few layouts are beyond pyarrow
        return False
    return all(_fits(types[f.name], schema.field(f.name).type, instants) for f in table.schema)


def _writer(rng: random.Random, part: Table) -> Writer:
    name = rng.choices(["pyarrow", "polars", "datafusion", "duckdb"], [40, 25, 20, 15])[0]
    writer = BY_WRITER[name]
    families = {family.name for family, _ in part.pools.values()}
    nested = any(pa.types.is_nested(f.type) for f in part.table.schema)
    if families & {*writer.without} or (nested and not writer.nested) or not part.table.num_rows:
        return BY_WRITER["pyarrow"]
    return writer


# -- reading it the plain way ------------------------------------------------------------------


def full_scan(lake: Lake, schema: pa.Schema) -> list[pa.Table]:
    """Every file, whole, as the lake's schema has it."""
    return [conform(lake, file, read(lake.root / file.path), schema) for file in lake.files]


def conform(lake: Lake, file: LakeFile, table: pa.Table, schema: pa.Schema) -> pa.Table:
    """One file's rows under the lake's schema; a partition's directory wins over what the file holds."""
    arrays = []
    for wanted in schema:
        if wanted.name in lake.partitions:
            family = PARTITION_KINDS[lake.partitions[wanted.name]][0]
            one = make_array(family.type, [file.partition[wanted.name]])
            arrays.append(one.take(pa.array([0] * table.num_rows, pa.int64())))
        elif wanted.name not in table.column_names:
            arrays.append(pa.nulls(table.num_rows, wanted.type))
        else:
            arrays.append(cast(whole(table.column(table.column_names.index(wanted.name))), wanted.type))
    return pa.Table.from_arrays([cast(a, f.type) for a, f in zip(arrays, schema, strict=True)], schema=schema)


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_dictionary(column.type):  # chunks may have dictionaries of their own
        column = column.unify_dictionaries()
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def cast(array: pa.Array, to: pa.DataType) -> pa.Array:
    """Another type for the same values."""
    if array.type == to:
        return array
    if pa.types.is_null(to):  # of a partition that is NULL everywhere
        assert array.null_count == len(array)
        return pa.nulls(len(array))
    if pa.types.is_dictionary(array.type):
        return cast(array.dictionary_decode(), to)
    if pa.types.is_dictionary(to):
        return cast(array, to.value_type).dictionary_encode().cast(to)
    if pa.types.is_struct(to) and pa.types.is_struct(array.type):
        own = {part.name: number for number, part in enumerate(array.type)}
        parts = [
            cast(pc.struct_field(array, [own[f.name]]), f.type)
            if f.name in own
            else pa.nulls(len(array), f.type)
            for f in to
        ]
        return pa.StructArray.from_arrays(parts, fields=list(to), mask=array.is_null())
    if pa.types.is_string_view(to) and not pa.types.is_string(array.type):
        return array.cast(pa.string()).cast(to)
    return array.cast(to)


def keep(table: pa.Table, mask: pa.Array) -> pa.Table:
    """The rows where the mask is TRUE; views have no kernel for it, and no columns would be no rows."""
    if not table.num_columns:
        return pa.table({"": pa.nulls(mask.true_count)}).select([])
    arrays = []
    for column in table.columns:
        plain = VIEWS.get(column.type)
        kept = (column if plain is None else column.cast(plain)).filter(mask)
        arrays.append(kept if plain is None else kept.cast(column.type))
    return pa.Table.from_arrays(arrays, schema=table.schema)


# -- comparing ---------------------------------------------------------------------------------


def same(left: pa.Array | pa.ChunkedArray, right: pa.Array | pa.ChunkedArray) -> bool:
    """Whether both have the same values in the same order: NaN is NaN, and zeros have a sign."""
    a, b = whole(left), whole(right)
    if a.type != b.type or len(a) != len(b):
        return False
    type = a.type
    if pa.types.is_dictionary(type):
        return same(a.dictionary_decode(), b.dictionary_decode())
    if pa.types.is_floating(type):
        bits = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[type.bit_width]
        nans = pc.is_nan(a if type.bit_width > 16 else a.cast(pa.float32()))
        other = pc.is_nan(b if type.bit_width > 16 else b.cast(pa.float32()))
        if not nans.equals(other):
            return False
        zero = pa.scalar(0, bits)  # NaN has many patterns of bits
        return bool(pc.if_else(nans, zero, a.view(bits)).equals(pc.if_else(other, zero, b.view(bits))))
    if pa.types.is_struct(type):
        return a.is_valid().equals(b.is_valid()) and all(
            same(pc.struct_field(a, [n]), pc.struct_field(b, [n])) for n in range(type.num_fields)
        )
    return bool(a.equals(b))


def difference(found: pa.Table, wanted: pa.Table) -> str | None:
    """What is wrong with a table, or None: names, types, rows, order."""
    if found.column_names != wanted.column_names:
        return f"columns {found.column_names} instead of {wanted.column_names}"
    for name in wanted.column_names:
        ours, theirs = found.schema.field(name).type, wanted.schema.field(name).type
        if ours != theirs:
            return f"column {name} is {ours} instead of {theirs}"
    if found.num_rows != wanted.num_rows:
        return f"{found.num_rows} rows instead of {wanted.num_rows}{_which(found, wanted)}"
    for name in wanted.column_names:
        if not same(found.column(name), wanted.column(name)):
            pairs = list(zip(_shown(found.column(name)), _shown(wanted.column(name)), strict=True))
            bad = [n for n, (ours, theirs) in enumerate(pairs) if ours != theirs]
            at = bad[0] if bad else -1
            return f"column {name} differs in {len(bad)} rows{_which(found, wanted)}; row {at}: {pairs[at]}"
    return None


def _shown(column: pa.ChunkedArray) -> list[str]:
    return [str(value)[:100] for value in whole(column)]


def _which(found: pa.Table, wanted: pa.Table) -> str:
    if ROW_ID not in wanted.column_names:
        return ""
    ours, theirs = (t.column(ROW_ID).to_pylist() for t in (found, wanted))
    lost, extra = sorted({*theirs} - {*ours}), sorted({*ours} - {*theirs})
    twice = len(ours) - len({*ours})
    return f" (lost {lost[:5]} of {len(lost)}, extra {extra[:5]} of {len(extra)}, repeated {twice})"


def under(schema: pa.Schema, made: Table) -> Table:
    """The pools of the columns that a schema has, for predicates about it."""
    pools = {path: pool for path, pool in made.pools.items() if _has(schema, path)}
    return Table(schema.empty_table(), pools, [path for path in made.nested if _has(schema, path)])


def _has(schema: pa.Schema, path: tuple[str, ...]) -> bool:
    if path[0] not in schema.names:
        return False
    type = schema.field(path[0]).type
    return len(path) == 1 or (pa.types.is_struct(type) and type.get_field_index(path[1]) >= 0)
