"""Of two runs that want the same file of a source, not both go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from skipstone.errors import ConflictError, CorruptFileError, ReadError
from skipstone.lake.append import Append, JournalSource
from skipstone.lake.journal import claim, ingested
from skipstone.store.store import Store, open_root

A, B, C = (JournalSource(f"s3://in/{name}.csv", 5, "etag") for name in "abc")


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return (
        open_root(tmp_path / "lake") if request.param == "local" else open_root("lake", store=MemoryStore())
    )


def test_a_file_is_taken_in_by_one(store: Store) -> None:
    with Append.begin(store) as first, Append.begin(store) as second, Append.begin(store) as third:
        claim(store, first, [A, B])
        with pytest.raises(ConflictError, match=r"b\.csv: another run is ingesting this file \(wait"):
            claim(store, second, [B, C])
        claim(store, third, [JournalSource("s3://in/d.csv", 5, "etag")])
        # It would have to see a file in another version, too.
        with pytest.raises(ConflictError, match=r"a\.csv"):
            claim(store, second, [JournalSource(A.uri, 9, "other")])


def test_what_was_done_meanwhile_is_seen(store: Store) -> None:
    with Append.begin(store) as first:
        claim(store, first, [A])
        first.publish([], sources=[A])
    meanwhile = r"a\.csv: another run has just ingested this file"
    with Append.begin(store) as second, pytest.raises(ConflictError, match=meanwhile):
        claim(store, second, [A, B])
    with Append.begin(store) as third:
        claim(store, third, [B])
        third.publish([], sources=[B])
    assert ingested(store) == {A, B}
    assert not store.list_prefix("_skipstone/staged")


def test_a_run_that_failed_claims_nothing(store: Store) -> None:
    with Append.begin(store) as first:
        claim(store, first, [A])
    with Append.begin(store) as second:
        claim(store, second, [A])


def test_frames_claim_nothing(store: Store) -> None:
    with Append.begin(store) as append:
        claim(store, append, [])
        assert not store.list_prefix("_skipstone/staged")


class Between:
    """A store where something happens just before a file is opened."""

    def __init__(self, store: Store, act: Any) -> None:
        self._store, self._act = store, act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def open(self, key: str, **options: Any) -> Any:
        self._act()
        return self._store.open(key, **options)


def test_a_run_that_ends_just_then(store: Store) -> None:
    first, second = Append.begin(store), Append.begin(store)
    claim(store, first, [A])
    ended: list[int] = []

    def publish() -> None:
        if not ended:
            ended.append(1)
            first.publish([], sources=[A])

    with second, pytest.raises(ConflictError, match="has just ingested this file"):
        claim(Between(store, publish), second, [A])  # type: ignore[arg-type]


def test_what_can_t_be_read_is_no_licence(store: Store) -> None:
    def fail() -> None:
        raise ReadError("out of reach")

    with Append.begin(store) as first, Append.begin(store) as second:
        claim(store, first, [A])
        with pytest.raises(ReadError, match="out of reach"):
            claim(Between(store, fail), second, [B])  # type: ignore[arg-type]
        first.stage.write("sources.json", [b"{"])
        with pytest.raises(CorruptFileError, match=r"sources\.json: claim is damaged"):
            claim(store, second, [B])
