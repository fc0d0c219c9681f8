"""Files numbered manifest by manifest: the same ones, whether manifests are read, kept, or a bit of both."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

import skipstone as sk
from skipstone.errors import CorruptFileError
from skipstone.iceberg.inventory import CachedEntries, Inventory, Listing, identities
from skipstone.iceberg.manifests.entries import Entries, ManifestPart
from skipstone.iceberg.manifests.lists import ManifestInfo
from tests.iceberg._maker import Maker


@dataclass
class Manifests:
    """Manifests that were read once, and how often each is asked for again."""

    notes: list[ManifestInfo]
    parts: list[Entries]
    specs: dict[int, object]
    asked: list[str] = field(default_factory=list)

    def load(self, notes: Sequence[ManifestInfo]) -> list[ManifestPart]:
        self.asked += [note.path for note in notes]
        known = {note.path: part for note, part in zip(self.notes, self.parts, strict=True)}
        return [ManifestPart(known[note.path], 0, len(known[note.path])) for note in notes]

    def inventory(
        self, kept: Sequence[int] | None = None, notes: list[ManifestInfo] | None = None
    ) -> Inventory:
        """An inventory whose numbered manifests are kept, in that order."""
        found = None
        if kept is not None:
            ends = list(itertools.accumulate(len(self.parts[n]) for n in kept))
            names = identities([self.notes[n] for n in kept], self.specs)  # type: ignore[arg-type]
            ranges = {
                name: (end - len(self.parts[n]), end) for name, n, end in zip(names, kept, ends, strict=True)
            }
            found = CachedEntries(Entries.concat([self.parts[n] for n in kept]), ranges)
        self.asked.clear()
        return Inventory(lambda: notes or self.notes, self.load, self.specs, found)  # type: ignore[arg-type]

    @property
    def paths(self) -> list[str]:
        return [path for part in self.parts for path in part.paths.to_pylist()]


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Manifests:
    """Four manifests of one, three, two and four files."""
    root: Path = tmp_path_factory.mktemp("inventory")
    maker = Maker(root, [("id", "long"), ("p", "string")], [("p", "identity")], seed="inventory")
    for count in (1, 3, 2, 4):
        maker.append([{"id": n, "p": "abcd"[n]} for n in range(count)], merge=False)
    lake = sk.open(maker.metadata_location)
    notes = [*lake.inventory.infos]
    # Some appends are cut in two.
    assert 4 <= len(notes) <= 6
    return Manifests(notes, lake.inventory.parts(), dict(lake.specs))


def test_files_are_numbered_manifest_by_manifest(manifests: Manifests) -> None:
    inventory = manifests.inventory()
    assert len(inventory) == 10
    assert not manifests.asked
    assert inventory.firsts.tolist() == [0, *itertools.accumulate(len(part) for part in manifests.parts)]
    entries, numbers = inventory.joined(np.array([2, 0]))
    assert numbers.tolist() == [
        *range(*inventory.firsts[2:4].tolist()),
        *range(*inventory.firsts[0:2].tolist()),
    ]
    assert entries.paths.to_pylist() == [manifests.paths[n] for n in numbers.tolist()]
    assert manifests.asked == [manifests.notes[n].path for n in (2, 0)]
    # What was read is not read again.
    assert inventory.take(np.array([9, 0, 0])).paths.to_pylist() == [manifests.paths[n] for n in (9, 0, 0)]
    assert len(manifests.asked) == 3


def test_what_is_kept_is_the_same_and_not_read(manifests: Manifests) -> None:
    count = len(manifests.notes)
    rng = random.Random(3)
    for _ in range(60):
        kept = rng.sample(range(count), rng.randrange(count + 1))
        inventory = manifests.inventory(kept)
        assert inventory.covered == (len(kept) == count)
        entries, numbers = inventory.everything
        assert entries.paths.to_pylist() == manifests.paths
        assert numbers.tolist() == list(range(10))
        files = np.array(rng.choices(range(10), k=rng.randrange(12)), dtype=np.int64)
        assert inventory.take(files).paths.to_pylist() == [manifests.paths[n] for n in files.tolist()]
        some = np.array(sorted(rng.sample(range(count), 2)))
        joined, mine = inventory.joined(some)
        assert joined.paths.to_pylist() == [manifests.paths[n] for n in mine.tolist()]
        assert {*manifests.asked} == {n.path for at, n in enumerate(manifests.notes) if at not in kept}
        assert len(manifests.asked) == count - len(kept)
        assert [part.paths.to_pylist() for part in inventory.parts()] == [
            part.paths.to_pylist() for part in manifests.parts
        ]


@pytest.mark.parametrize("kept", [None, [], [1, 0]])
def test_counts_that_old_writers_leave_out_are_found(manifests: Manifests, kept: list[int] | None) -> None:
    bare = [replace(note, added_files=None, existing_files=None) for note in manifests.notes]
    inventory = manifests.inventory(kept, bare)
    assert len(inventory) == 10
    assert len(manifests.asked) == len(bare) - len(kept or ())
    assert inventory.everything[0].paths.to_pylist() == manifests.paths


def test_a_list_that_says_something_else_is_refused(manifests: Manifests) -> None:
    """Also if the manifest is kept, and would not be read otherwise."""
    lying = [*manifests.notes]
    lying[1] = replace(lying[1], added_files=7, existing_files=0)
    for kept in (None, [*range(len(lying))], [1]):
        inventory = manifests.inventory(kept, lying)
        with pytest.raises(CorruptFileError, match="the manifest list recorded 7") as refused:
            inventory.everything  # noqa: B018
        assert (refused.value.path, bool(refused.value.hint)) == (lying[1].path, True)


def test_a_manifest_is_known_by_all_that_its_entries_inherit(manifests: Manifests) -> None:
    note = manifests.notes[0]
    specs = manifests.specs
    (name,) = identities([note], specs)  # type: ignore[arg-type]
    for other in (
        replace(note, path="x"),
        replace(note, length=note.length + 1),
        replace(note, spec_id=9),
        replace(note, sequence=note.sequence + 1),
        replace(note, snapshot=5),
        replace(note, first_row_id=8),
    ):
        assert identities([other], specs) != [name]  # type: ignore[arg-type]
    assert identities([note], {}) != [name]
    assert identities([replace(note, added_rows=99)], specs) == [name]  # type: ignore[arg-type]


def test_a_listing_is_a_sequence(manifests: Manifests) -> None:
    listing = Listing(manifests.inventory([0, 2]))
    assert len(listing) == 10
    assert [entry.key for entry in listing] == manifests.paths
    assert [listing[n].key for n in range(10)] == manifests.paths
    assert [entry.key for entry in listing[7:3:-2]] == [manifests.paths[n] for n in (7, 5)]
    assert listing[4].size == int(manifests.inventory().take(np.array([4])).sizes[0])
    assert {entry.version for entry in listing} == {None}


def test_an_empty_table_has_an_empty_inventory() -> None:
    inventory = Inventory(list, lambda notes: [], {})
    assert (len(inventory), inventory.covered, inventory.parts()) == (0, True, [])
    entries, numbers = inventory.everything
    assert (len(entries), len(numbers), len(inventory.take(np.zeros(0, dtype=np.int64)))) == (0, 0, 0)
    assert [*Listing(inventory)] == []
