"""Files other people made: pruned they give what a full read gives, or a clear error."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.core.domain.keys import is_ordered
from skipstone.errors import SkipstoneError
from skipstone.predicate import tree
from tests.property._oracle import CantEvaluate, Oracle, Truths, read
from tests.support.samples import sample

CORPUS = Path(__file__).resolve().parents[2].parent / "shared" / "corpus" / "parquet-testing"
OPS: tuple[tree.CompareOp, ...] = ("=", "<>", "<", "<=", ">", ">=", "<=>")
COMBINATIONS = ((1, 1, 1), (0, 0, 0), (1, 0, 0), (0, 1, 1))
VALUES = 3
MOST = sample("corpus")
"""Predicates per file: wide ones are sampled."""


def files(folder: str) -> list[Any]:
    found = sorted((CORPUS / folder).glob("*.parquet")) if CORPUS.exists() else []
    missing = pytest.param(
        None, marks=pytest.mark.skip(reason=f"no corpus at {CORPUS / folder}"), id="absent"
    )
    return [pytest.param(path, id=path.name) for path in found] or [missing]


def flat_paths(
    fields: list[pa.Field], above: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], pa.DataType]]:
    """Every column, and every field of structs, by path."""
    paths: list[tuple[tuple[str, ...], pa.DataType]] = []
    for field in fields:
        path = (*above, field.name)
        paths.append((path, field.type))
        if pa.types.is_struct(field.type):
            paths += flat_paths(list(field.type.fields), path)
    return paths


def predicates(oracle: Oracle, schema: pa.Schema, rng: random.Random) -> list[tree.Predicate]:
    """For each column: every comparison with some of its values, sets, ranges, NULL, and combinations."""
    found: list[tree.Predicate] = []
    for path, type in flat_paths(list(schema)):
        column = sk.col(*path)
        found += [column.is_null(), column.is_not_null()]
        if not is_ordered(type):
            continue
        if pa.types.is_floating(type):
            found += [column.is_nan(), column > 0.0, column <= -0.0]
        values = [v for v in _some(oracle.arrow(path), rng) if v.is_valid]
        for value in values:
            found += [tree.Compare(op, column, sk.lit(value)) for op in OPS]
        if len(values) > 1:
            low, high = sk.lit(values[0]), sk.lit(values[-1])
            found += [column.between(low, high), ~column.between(high, low, "neither")]
            one = pa.concat_arrays([pa.repeat(v, 1) for v in values])
            found += [column.isin(one), ~column.isin(one)]
        if values and (pa.types.is_string(type) or pa.types.is_binary(type)):
            text = values[0].as_py()
            found += [column.startswith(text[:1]), ~column.startswith(text[:2])]
    mixed = [rng.sample(found, 2) for _ in range(min(40, len(found) // 2))]
    return [*found, *(a & b for a, b in mixed[::2]), *(a | ~b for a, b in mixed[1::2])]


def _some(array: pa.Array, rng: random.Random) -> list[pa.Scalar]:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    rows = sorted(rng.sample(range(len(array)), min(VALUES, len(array))))
    return [array[row] for row in rows]


def assert_sound(path: Path, predicate: tree.Predicate, truth: Truths, metadata: sk.ParquetMetadata) -> None:
    wanted = sk.RowSet.from_mask(np.array([v is True for v in truth], dtype=bool))
    kept = {}
    for chosen in COMBINATIONS:
        page, bloom, dictionary = map(bool, chosen)
        result = sk.prune(
            str(path),
            predicate,
            metadata=metadata,
            page_index=page,
            bloom_filter=bloom,
            dictionary=dictionary,
        )
        where = f"{path.name}: {predicate} with {chosen}"
        assert wanted.issubset(result.rows), f"{where}: rows {wanted - result.rows} were dropped"
        assert result.proven.issubset(wanted), f"{where}: rows {result.proven - wanted} are no match"
        kept[chosen] = result.rows
    assert kept[1, 1, 1].issubset(kept[0, 0, 0])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("path", files("data"))
def test_pruned_is_what_a_full_read_gives(path: Path) -> None:
    metadata = sk.read_metadata(str(path))
    try:
        table = read(path)
    except (OSError, pa.ArrowException, NotImplementedError) as error:
        pytest.skip(f"pyarrow can't read it: {error}")
    oracle = Oracle(table)
    checked = 0
    rng = random.Random(path.name)
    made = predicates(oracle, table.schema, rng)
    for predicate in made if len(made) <= MOST else rng.sample(made, MOST):
        try:
            truth = oracle.answer(predicate)
        except CantEvaluate:
            continue
        assert_sound(path, predicate, truth, metadata)
        checked += 1
    assert checked >= min(MOST // 2, 2 * len(table.schema))


@pytest.mark.parametrize("path", files("bad_data"))
def test_bad_data_is_an_error_or_right(path: Path) -> None:
    try:
        metadata = sk.read_metadata(str(path))
    except SkipstoneError as error:
        refused = str(error)
    else:
        refused = None
    if refused is not None:
        assert path.name in refused
        return
    try:
        table = read(path)
    except (OSError, pa.ArrowException):
        table = None
    for name_path, type in flat_paths(list(metadata.arrow_schema)):
        column = sk.col(*name_path)
        for predicate in (column.is_null(), *([column.isin(_typed(type))] if is_ordered(type) else [])):
            try:
                result = sk.prune(str(path), predicate, dictionary=True)
            except SkipstoneError:
                continue
            assert result.proven.issubset(result.rows)
            if table is not None:
                truth = np.array([v is True for v in Oracle(table).answer(predicate)])
                assert set(np.flatnonzero(truth).tolist()) <= set(result.rows)


def _typed(type: pa.DataType) -> pa.Array:
    """A value of the type: its zero."""
    text = pa.types.is_string(type) or pa.types.is_binary(type)
    return pa.array(["0"]).cast(type) if text else pa.array([0]).cast(type)
