"""Files of old versions of libraries, some with wrong statistics: no row is lost, and no count is wrong."""

from __future__ import annotations

import contextlib
import math
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.core.domain.keys import is_ordered
from skipstone.predicate import tree
from tests.corpus._old_writers import KEPT, WRITERS, Writer
from tests.corpus.test_corpus import assert_sound, flat_paths, predicates
from tests.property._oracle import CantEvaluate, Oracle

FILES = sorted(KEPT.glob("*.parquet"))
SOME = 4
"""Further conditions about a kept file, besides those on NULL."""


def check(path: Path, folder: Path, most: int | None = None) -> None:
    """Compare conditions and aggregates with a full read: without an index, and with one or two."""
    place = folder / path.stem / "lake"
    place.mkdir(parents=True)
    shutil.copy(path, place)
    table = read_plain(path)
    oracle, rng = Oracle(table), random.Random(path.name)
    made = predicates(oracle, table.schema, rng)
    first = [one for one in made if str(one).endswith((" IS NULL", " IS NOT NULL"))]
    rest = [one for one in made if all(one is not other for other in first)]
    truths = []
    for predicate in [*first, *(rest if most is None else rng.sample(rest, min(most, len(rest))))]:
        with contextlib.suppress(CantEvaluate):
            truths.append((predicate, oracle.answer(predicate)))
    assert len(truths) > len(first) > len(table.schema)
    metadata = sk.read_metadata(str(path))
    for predicate, truth in truths:
        assert_sound(path, predicate, truth, metadata)
        wanted = sum(value is True for value in truth)
        assert sk.open(place).scan(predicate, skipping=False).count() == wanted, predicate
    named = [name for name in table.column_names if is_ordered(table[name].type)]
    # An index of named columns records their values instead of statistics.
    for columns in (None, (), named) if most is None else (None, ()):
        lake = sk.open(place)
        if columns is not None:
            lake.index.build(columns or None, rebuild=True, engine="local")
            lake = sk.open(place)
            assert lake.index.coverage is not None
            assert lake.index.coverage.covered == 1
        check_lake(lake, table, truths, columns)


def read_plain(path: Path) -> pa.Table:
    """All row groups as pyarrow reads them, without dictionaries: it does not read fields that are some."""
    file = pq.ParquetFile(path)
    groups = [file.read_row_group(number) for number in range(file.num_row_groups)]
    schema = pa.schema([(field.name, plain_type(field.type)) for field in file.schema_arrow])
    return pa.concat_tables([group.cast(schema) for group in groups]).combine_chunks()


def plain_type(type: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type):
        return pa.struct([(field.name, plain_type(field.type)) for field in type])
    type = type.value_type if pa.types.is_dictionary(type) else type
    views = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    return views.get(type, type)


def check_lake(lake: sk.Lake, table: pa.Table, truths: list[tuple[tree.Predicate, Any]], how: object) -> None:
    for predicate, truth in truths:
        wanted = sum(value is True for value in truth)
        assert lake.scan(predicate).count() == wanted, f"{predicate}, indexed: {how}"
    for path, type in flat_paths(list(table.schema)):
        name = ".".join(path)
        values = Oracle(table).arrow(path)
        found = lake.scan().aggregate(f"count({name})").to_pylist()[0]
        assert found == {f"count({name})": len(values) - values.null_count}, f"{name}, indexed: {how}"
        if is_ordered(type) and len(path) == 1:
            found = lake.scan().aggregate(f"min({name})", f"max({name})").to_pylist()[0]
            assert [*map(plain, found.values())] == ends(values), f"{name}, indexed: {how}"


def ends(values: pa.Array) -> list[Any]:
    """The least and the greatest value; NaN is the greatest."""
    values = values.drop_null()
    if not pa.types.is_floating(values.type):
        return [*pc.min_max(values).as_py().values()]
    order = sorted(values.to_pylist(), key=lambda value: (math.isnan(value), value))
    return [plain(order[at]) if order else None for at in (0, -1)]


def plain(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def test_every_kept_file_was_written_by_a_known_version() -> None:
    names = {f"{writer}-{name}.parquet" for writer in WRITERS for name in writer.kept}
    assert {path.name for path in FILES} == names


@pytest.mark.sampled(2)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_statistics_of_old_writers_lose_no_row(path: Path, tmp_path: Path) -> None:
    check(path, tmp_path, SOME)


@pytest.mark.parametrize(
    ("name", "where", "rows"),
    [
        ("pyarrow-1.0.1-dictionary", "string = 'c'", 3),
        ("pyarrow-1.0.1-dictionary", "string IS NULL", 6),
        ("pyarrow-1.0.1-dictionary", "shared IS NULL", 9),
        ("pyarrow-10.0.1-dictionary", "shared = 'x'", 9),
        ("pyarrow-10.0.1-dictionary", "record.shared = 'x'", 9),
        ("pyarrow-10.0.1-dictionary", "record.string = 'x'", 3),
        ("pyarrow-10.0.1-dictionary", "codes = 3", 3),
        ("pyarrow-11.0.0-dictionary", "shared = 'x'", 3),
        ("pyarrow-11.0.0-dictionary", "shared IS NULL", 6),
        ("polars-0.19.19-groups", "number IS NULL", 9),
        ("polars-0.20.10-groups", "number IS NULL", 6),
        ("polars-0.20.10-groups", "category IS NULL", 9),
        ("polars-0.20.10-groups", "string = 'x'", 6),
        ("polars-1.0.0-groups", "string IS NULL", 6),
        ("duckdb-0.9.2-groups", "string IS NULL", 6144),
        ("duckdb-1.2.2-groups", "truth IS NULL", 0),
        ("chdb-3.6.0-own", "string = 'v1'", 3),
    ],
)
def test_what_is_believed_is_used(name: str, where: str, rows: int) -> None:
    assert len(sk.prune(KEPT / f"{name}.parquet", where, dictionary=False).rows) == rows


@pytest.mark.parametrize(
    ("name", "column", "read"),
    [
        ("duckdb-0.9.2-groups", "number", True),
        ("duckdb-0.10.3-groups", "number", True),
        ("duckdb-1.2.2-groups", "number", False),
        ("polars-1.38.0-pages", "number", True),
        ("polars-1.38.0-pages", "nothing", True),
        ("pyarrow-10.0.1-dictionary", "shared", True),
        ("pyarrow-10.0.1-dictionary", "string", False),
        ("chdb-3.6.0-own", "category", False),
    ],
)
def test_counts_read_the_columns_whose_null_counts_are_inexact(name: str, column: str, read: bool) -> None:
    found = sk.open(KEPT / f"{name}.parquet").scan().aggregate(f"count({column})")
    assert (found.trace.rows_read > 0) is read


def test_without_a_stored_schema_any_string_can_have_been_a_dictionary(tmp_path: Path) -> None:
    kept = KEPT / "pyarrow-10.0.1-dictionary.parquet"
    other = tmp_path / "other.parquet"
    other.write_bytes(kept.read_bytes().replace(b"ARROW:schema", b"OTHER:schema"))
    plain = tmp_path / "plain.parquet"
    kept = KEPT / "pyarrow-10.0.1-plain.parquet"
    plain.write_bytes(kept.read_bytes().replace(b"ARROW:schema", b"OTHER:schema"))
    for path, rows in ((other, 9), (plain, 3)):
        assert len(sk.prune(path, "string = 'c'", dictionary=False).rows) == rows
        assert len(sk.prune(path, "number = 3").rows) == 3
    check(other, tmp_path, SOME)


@pytest.mark.slow
@pytest.mark.parametrize("writer", [one for one in WRITERS if one.interpreter() is not None], ids=str)
def test_files_that_old_versions_write_now(writer: Writer, tmp_path: Path) -> None:
    (tmp_path / "written").mkdir()
    paths = writer.write(tmp_path / "written")
    assert paths
    for path in paths:
        check(path, tmp_path)
    assert set(writer.kept) <= {path.stem for path in paths}


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_all_conditions_about_kept_files(path: Path, tmp_path: Path) -> None:
    check(path, tmp_path)
