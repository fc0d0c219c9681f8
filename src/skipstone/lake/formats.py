"""Directories that belong to a table, whose log alone tells which rows of its files count.

An Iceberg, Delta or Hudi table keeps files whose rows were deleted or replaced. A listing of its directory,
of a part of it, or of a warehouse above it would return them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from skipstone.engine.jobs import gather
from skipstone.errors import ReadError, UsageError
from skipstone.store.place import Listed, Place

_ICEBERG: Final = "metadata"
_DELTA: Final = "_delta_log"
_HUDI: Final = ".hoodie"
_LOGS: Final = (
    ("an Iceberg", re.compile(rf"(?s)(.*/)?{_ICEBERG}/(?:[^/]+\.metadata\.json(\.gz)?|version-hint\.text)")),
    ("a Delta", re.compile(rf"(?s)(.*/)?{_DELTA}/[^/]+")),
    # Each partition has a file of its own that begins so.
    ("a Hudi", re.compile(rf"(?s)(.*/)?{_HUDI}(?:/.*|_partition_metadata[^/]*)")),
)
_VERSION: Final = re.compile(r"v?(\d+)")
_REQUESTS: Final = 8


def refuse_tables(place: Place, listed: Sequence[Listed]) -> None:
    """Refuse a directory that is a table's or has tables in it, as a listing of it tells."""
    for entry in listed:
        key = entry.key
        # There may be millions of keys: most have none of these in them, which is quickly seen.
        if not (_ICEBERG in key or _DELTA in key or _HUDI in key):
            continue
        for kind, log in _LOGS:
            found = log.fullmatch(key)
            if found is not None:
                root = found[1] or ""
                inner = f" {place.path(root.rstrip('/'))}" if root else ""
                problem = f"the directory {'contains' if inner else 'belongs to'} {kind} table{inner}"
                own = [e for e in listed if e.key.startswith(f"{root}{_ICEBERG}/")]
                raise _refusal(problem, place, place, own)


def refuse_part_of_table(place: Place) -> None:
    """Refuse a directory inside a table: one below ``data``, as Iceberg names it, or a partition.

    That takes a request for each ``data`` in the path, and three if the path ends in partitions, all at once.
    A directory above that can't be listed is taken for no table's.
    """
    looks: list[tuple[Place, str]] = []
    inner = place
    while (above := inner.parent()) is not None:
        if _name(inner) == "data":
            looks.append((above, _ICEBERG))
        elif "=" in _name(inner) and "=" not in _name(above):
            looks += [(above, folder) for folder in (_ICEBERG, _DELTA, _HUDI)]
        inner = above
    for (above, _), found in zip(looks, gather(_look, looks, threads=_REQUESTS), strict=True):
        kinds = [kind for kind, log in _LOGS if any(log.fullmatch(entry.key) for entry in found)]
        if kinds:
            raise _refusal(f"the directory belongs to {kinds[0]} table, {above.uri}", place, above, found)


def _look(where: tuple[Place, str]) -> list[Listed]:
    above, folder = where
    with suppress(ReadError):
        files = above.child(folder).files_here()
        return [Listed(f"{folder}/{entry.key}", entry.size, entry.version) for entry in files]
    return []


def _refusal(problem: str, place: Place, owner: Place, files: Sequence[Listed]) -> UsageError:
    metadata = [entry.key for entry in files if ".metadata.json" in entry.key]
    how = "read the table with a reader of its format"
    if metadata:
        newest = max(metadata, key=_version)
        how = f"open the table by its catalog, or its metadata: {owner.path(newest)}"
    as_files = f"{place.uri.rstrip('/')}/**/*.parquet"
    hint = f"{how}; its files as they are, deleted rows included, are the glob {as_files}"
    return UsageError(problem, path=place.uri, hint=hint)


def _version(key: str) -> tuple[int, str]:
    found = _VERSION.match(key.rpartition("/")[2])
    return (int(found[1]) if found is not None else -1, key)


def _name(place: Place) -> str:
    return place.uri.rstrip("/").rpartition("/")[2]
