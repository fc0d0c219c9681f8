"""Of two runs that want the same file of a source, not both go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from skipstone.errors import ConflictError, CorruptFileError, ReadError
from skipstone.lake.append import Append, JournalSource
from skipstone.lake.journal import claim, ingested
from skipstone.store.place import Place, open_root

A, B, C = (JournalSource(f"s3://in/{name}.csv", 5, "etag") for name in "abc")


@pytest.fixture(params=["local", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return (
        open_root(tmp_path / "lake") if request.param == "local" else open_root("lake", store=MemoryStore())
    )


def test_a_file_is_taken_in_by_one(place: Place) -> None:
    with Append.begin(place) as first, Append.begin(place) as second, Append.begin(place) as third:
        claim(place, first, [A, B])
        with pytest.raises(ConflictError, match=r"b\.csv: another run is taking it in \(wait"):
            claim(place, second, [B, C])
        claim(place, third, [JournalSource("s3://in/d.csv", 5, "etag")])
        # It would have to see a file in another version, too.
        with pytest.raises(ConflictError, match=r"a\.csv"):
            claim(place, second, [JournalSource(A.uri, 9, "other")])


def test_what_was_done_meanwhile_is_seen(place: Place) -> None:
    with Append.begin(place) as first:
        claim(place, first, [A])
        first.publish([], sources=[A])
    meanwhile = r"a\.csv: another run has taken it in meanwhile"
    with Append.begin(place) as second, pytest.raises(ConflictError, match=meanwhile):
        claim(place, second, [A, B])
    with Append.begin(place) as third:
        claim(place, third, [B])
        third.publish([], sources=[B])
    assert ingested(place) == {A, B}
    assert not place.below("_skipstone/staged")


def test_a_run_that_failed_claims_nothing(place: Place) -> None:
    with Append.begin(place) as first:
        claim(place, first, [A])
    with Append.begin(place) as second:
        claim(place, second, [A])


def test_frames_claim_nothing(place: Place) -> None:
    with Append.begin(place) as append:
        claim(place, append, [])
        assert not place.below("_skipstone/staged")


class Between:
    """A place where something happens just before a file is opened."""

    def __init__(self, place: Place, act: Any) -> None:
        self._place, self._act = place, act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)

    def open(self, key: str, **options: Any) -> Any:
        self._act()
        return self._place.open(key, **options)


def test_a_run_that_ends_just_then(place: Place) -> None:
    first, second = Append.begin(place), Append.begin(place)
    claim(place, first, [A])
    ended: list[int] = []

    def publish() -> None:
        if not ended:
            ended.append(1)
            first.publish([], sources=[A])

    with second, pytest.raises(ConflictError, match="has taken it in meanwhile"):
        claim(Between(place, publish), second, [A])  # type: ignore[arg-type]


def test_what_can_t_be_read_is_no_licence(place: Place) -> None:
    def fail() -> None:
        raise ReadError("out of reach")

    with Append.begin(place) as first, Append.begin(place) as second:
        claim(place, first, [A])
        with pytest.raises(ReadError, match="out of reach"):
            claim(Between(place, fail), second, [B])  # type: ignore[arg-type]
        first.stage.write("sources.json", [b"{"])
        with pytest.raises(CorruptFileError, match=r"sources\.json: it can't be understood"):
            claim(place, second, [B])
