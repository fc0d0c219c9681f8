"""Two runs over one source at once: who takes a file in says so first, in its stage, and looks who else does.

Each writes before it looks, so of two that want the same file at least one sees the other, or what the other
has done. What a job that died has said is swept away with its stage.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final

from skipstone.errors import ConflictError, CorruptFileError, ReadError
from skipstone.lake.append import Append, Source
from skipstone.lake.journal import encode_journal, ingested
from skipstone.lake.records import STAGED, stage_key
from skipstone.store.place import Listed, Place

_CLAIM: Final = "sources.json"


def claim(place: Place, append: Append, sources: Collection[Source]) -> None:
    """Say what a job takes in; a ConflictError if another job is at the same, or has done it just now."""
    if not sources:
        return
    mine = {source.uri for source in sources}
    append.stage.write(_CLAIM, [encode_journal(sources)])
    own = f"{stage_key(append.job)}/{_CLAIM}"
    for entry in place.below(STAGED):
        if entry.key.endswith(f"/{_CLAIM}") and entry.key != own:
            _refuse(mine & _claimed(place, entry), "another run is taking it in")
    _refuse(mine & {source.uri for source in ingested(place)}, "another run has taken it in meanwhile")


def _refuse(shared: set[str], problem: str) -> None:
    if shared:
        raise ConflictError(problem, path=min(shared), hint="wait for that run to end, then start this one")


def _claimed(place: Place, entry: Listed) -> set[str]:
    try:
        body = place.open(entry.key).tail(max(entry.size, 1))[0]
    except ReadError:
        if any(other.key == entry.key for other in place.below(STAGED)):
            raise
        return set()  # that job is over, and the journals tell what it has done
    try:
        return {str(uri) for uri, _, _ in json.loads(body)["sources"]}
    except (ValueError, KeyError, TypeError) as error:
        hint = "delete it if no job is running"
        raise CorruptFileError("it can't be understood", path=place.path(entry.key), hint=hint) from error
