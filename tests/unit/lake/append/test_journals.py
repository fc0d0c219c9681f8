"""Journals say what was taken in."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from skipstone.errors import CorruptFileError, ReadError
from skipstone.lake import journal
from skipstone.lake.append import Append
from skipstone.lake.journal import JournalSource, ingested
from skipstone.store.place import Place
from tests.unit.lake.append._jobs import Counted, gone_pid, half, publish, sign


def source(number: int) -> JournalSource:
    return JournalSource(f"in/{number}.csv", number, f"etag{number}")


def test_what_was_taken_in(place: Place) -> None:
    assert ingested(place) == set()
    publish(place, sources=[source(1), source(2)])
    publish(place, sources=iter([source(2), source(3)]))
    assert ingested(place) == {source(1), source(2), source(3)}
    assert pickle.loads(pickle.dumps(source(1))) == source(1)


def test_a_job_that_is_not_done_has_taken_in_nothing(place: Place) -> None:
    publish(place, sources=[source(1)])
    job = half(place)
    place.write(f"_skipstone/sources/{job}.json", [journal.encode_journal([source(9)])])
    assert ingested(place) == {source(1)}
    sign(place, job, pid=gone_pid())
    Append.begin(place).abort()
    assert ingested(place) == {source(1)}
    assert len(place.below("_skipstone/sources")) == 1


def test_many_journals_become_one(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from skipstone.lake import append as module

    monkeypatch.setattr(module, "MANY_JOURNALS", 3)
    for number in range(4):
        publish(place, sources=[source(number)])
    assert len(place.below("_skipstone/sources")) == 4
    job = half(place)
    place.write(f"_skipstone/sources/{job}.json", [journal.encode_journal([source(99)])])
    publish(place)
    left = [entry.key for entry in place.below("_skipstone/sources")]
    assert len(left) == 2, "one for all that are done, and that of the job that is not"
    assert ingested(place) == {source(number) for number in range(4)}


def test_journals_are_merged_while_they_are_read(place: Place) -> None:
    """A listing that misses the new one, and the old ones too, is not believed."""
    for number in range(3):
        publish(place, sources=[source(number)])
    old = place.below("_skipstone/sources")
    merged = journal.encode_journal([source(number) for number in range(3)])

    class Merging(Counted):
        def below(self, prefix: str) -> Any:
            found = super().below(prefix)
            if self.asked == ["_skipstone/sources"]:
                place.write(f"_skipstone/sources/{'f' * 20}.json", [merged])
                place.delete([entry.key for entry in old])
                return found[:1]
            return found

    merging: Any = Merging(place)
    assert ingested(merging) == {source(number) for number in range(3)}


def test_a_damaged_journal(place: Place) -> None:
    publish(place, sources=[source(1)])
    for data in (b"", b"{}", b'{"sources": [[1, 2, 3]]}', b'{"sources": [["a"]]}'):
        place.write("_skipstone/sources/0.json", [data])
        with pytest.raises((CorruptFileError, ReadError)):
            ingested(place)
