"""Manifests that are read together: each gives what it gives alone, and one that is damaged is named."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from skipstone.errors import CorruptFileError
from skipstone.iceberg.manifests.entries import Entries, ManifestPart, joined, runs
from skipstone.iceberg.manifests.lists import ManifestInfo
from skipstone.iceberg.manifests.reading import Manifests, clear_cache, read_manifest
from tests.unit.iceberg import _avro as av

_SPECS = {
    0: PartitionSpec(spec_id=0),
    1: PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"), spec_id=1),
}
_PARTITION = av.field("p", 1000, av.optional("string"))


@pytest.fixture(autouse=True)
def _fresh() -> None:
    clear_cache()


def _manifest(rng: random.Random, number: int) -> tuple[ManifestInfo, bytes]:
    """A manifest of either spec, perhaps empty, and a note that says what its entries inherit."""
    spec_id = rng.randrange(2)
    schema = av.entry_schema(_PARTITION) if spec_id else av.entry_schema()
    entries = []
    for file in range(rng.choice([0, 1, 3, 20])):
        status = rng.randrange(3)
        given: dict[str, Any] = {"value_counts": av.as_map({1: file, 2: rng.randint(0, 999)})}
        if status != 1 or rng.random() < 0.5:
            given["sequence_number"] = rng.randint(1, 5)
        if spec_id:
            given["partition"] = {"p": rng.choice([None, "a", "b"])}
        if rng.random() < 0.3:
            given["first_row_id"] = rng.randint(0, 900)
        path = f"{number}-{file}{'x' * rng.randint(0, 90)}"
        entries.append(av.entry(path, status=status, record_count=rng.randint(0, 9), **given))
    data = av.manifest(schema, entries)
    first = rng.choice([None, 1000 * number])
    note = ManifestInfo(
        f"m{number}", len(data), spec_id, sequence=6 + number, snapshot=50 + number, first_row_id=first
    )
    return note, data


def test_manifests_that_are_read_together_are_what_they_are_alone() -> None:
    rng = random.Random(4)
    shared = 0
    for _ in range(15):
        made = dict(_manifest(rng, number) for number in range(rng.randint(2, 9)))
        notes = [*made]
        alone = [read_manifest(data, note, _SPECS) for note, data in made.items()]
        clear_cache()
        manifests = Manifests({note.path: data for note, data in made.items()}.__getitem__, _SPECS)
        parts = manifests.each(notes)
        shared += len(parts) - len({id(part.batch) for part in parts})
        for part, expected in zip(parts, alone, strict=True):
            assert part.entries.to_table().equals(expected.to_table(), check_metadata=bool(len(expected)))
        order = rng.choices(range(len(notes)), k=6)
        found = manifests.entries([notes[n] for n in order])
        assert found.to_table().equals(Entries.concat([alone[n] for n in order]).to_table())
    assert shared > 20


@pytest.mark.parametrize("damage", ["cut", "status", "noise"])
def test_the_damaged_one_of_many_is_named(damage: str) -> None:
    schema = av.entry_schema()
    bodies = {f"m{n}": av.manifest(schema, [av.entry(f"{n}", status=1)] * 3) for n in range(5)}
    bodies["m3"] = {
        "cut": bodies["m3"][:-4],
        "status": av.manifest(schema, [av.entry("x", status=7)]),
        "noise": b"Obj\x01" + bytes(50),
    }[damage]
    notes = [ManifestInfo(path, len(data), 0, sequence=1) for path, data in bodies.items()]
    with pytest.raises(CorruptFileError) as refused:
        Manifests(bodies.__getitem__, _SPECS).each(notes)
    assert (refused.value.path, bool(refused.value.hint)) == ("m3", True)
    # The others can be read.
    assert len(Manifests(bodies.__getitem__, _SPECS).entries([*notes[:3], notes[4]])) == 12


def test_parts_are_joined_in_their_own_order() -> None:
    rng = random.Random(8)
    schema = av.entry_schema()
    batches = []
    for number, count in enumerate((7, 1, 4)):
        data = av.manifest(schema, [av.entry(f"{number}-{file}") for file in range(count)])
        batches.append(read_manifest(data, ManifestInfo("m", len(data), 0), _SPECS))
    for _ in range(100):
        parts = []
        for _ in range(rng.randrange(6)):
            batch = rng.choice(batches)
            start = rng.randint(0, len(batch))
            parts.append(ManifestPart(batch, start, rng.randint(start, len(batch))))
        wanted = [path for p in parts for path in p.batch.paths.to_pylist()[p.start : p.stop]]
        assert joined(parts).paths.to_pylist() == wanted
        assert sum(map(len, parts)) == len(wanted)
    # What is wanted whole is not copied.
    assert joined([ManifestPart(batches[0], 0, 3), ManifestPart(batches[0], 3, 7)]) is batches[0]
    assert len(joined([])) == 0


def test_runs() -> None:
    assert runs(np.array([3, 0, 5]), np.array([5, 0, 6])).tolist() == [3, 4, 5]
    assert runs(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)).tolist() == []
