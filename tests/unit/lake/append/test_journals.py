"""Journals say what was taken in."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from skipstone.errors import CorruptFileError, ReadError
from skipstone.lake import journal
from skipstone.lake.append import Append
from skipstone.lake.journal import JournalSource, ingested
from skipstone.store.store import Store
from tests.unit.lake.append._jobs import Counted, gone_pid, half, publish, sign


def source(number: int) -> JournalSource:
    return JournalSource(f"in/{number}.csv", number, f"etag{number}")


def test_what_was_taken_in(store: Store) -> None:
    assert ingested(store) == set()
    publish(store, sources=[source(1), source(2)])
    publish(store, sources=iter([source(2), source(3)]))
    assert ingested(store) == {source(1), source(2), source(3)}
    assert pickle.loads(pickle.dumps(source(1))) == source(1)


def test_a_job_that_is_not_done_has_taken_in_nothing(store: Store) -> None:
    publish(store, sources=[source(1)])
    job = half(store)
    store.write(f"_skipstone/sources/{job}.json", [journal.encode_journal([source(9)])])
    assert ingested(store) == {source(1)}
    sign(store, job, pid=gone_pid())
    Append.begin(store).abort()
    assert ingested(store) == {source(1)}
    assert len(store.list_prefix("_skipstone/sources")) == 1


def test_many_journals_become_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from skipstone.lake import append as module

    monkeypatch.setattr(module, "MANY_JOURNALS", 3)
    for number in range(4):
        publish(store, sources=[source(number)])
    assert len(store.list_prefix("_skipstone/sources")) == 4
    job = half(store)
    store.write(f"_skipstone/sources/{job}.json", [journal.encode_journal([source(99)])])
    publish(store)
    left = [entry.key for entry in store.list_prefix("_skipstone/sources")]
    assert len(left) == 2, "one for all that are done, and that of the job that is not"
    assert ingested(store) == {source(number) for number in range(4)}


def test_journals_are_merged_while_they_are_read(store: Store) -> None:
    """A listing that misses the new one, and the old ones too, is not believed."""
    for number in range(3):
        publish(store, sources=[source(number)])
    old = store.list_prefix("_skipstone/sources")
    merged = journal.encode_journal([source(number) for number in range(3)])

    class Merging(Counted):
        def list_prefix(self, prefix: str) -> Any:
            found = super().list_prefix(prefix)
            if self.asked == ["_skipstone/sources"]:
                store.write(f"_skipstone/sources/{'f' * 20}.json", [merged])
                store.delete([entry.key for entry in old])
                return found[:1]
            return found

    merging: Any = Merging(store)
    assert ingested(merging) == {source(number) for number in range(3)}


def test_a_damaged_journal(store: Store) -> None:
    publish(store, sources=[source(1)])
    for data in (b"", b"{}", b'{"sources": [[1, 2, 3]]}', b'{"sources": [["a"]]}'):
        store.write("_skipstone/sources/0.json", [data])
        with pytest.raises((CorruptFileError, ReadError)):
            ingested(store)
