"""All files that the snapshots and the metadata of a table refer to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from skipstone.compact.removal import FILES, files_table
from skipstone.engine.jobs import gather
from skipstone.errors import FileError
from skipstone.iceberg.manifests.lists import ManifestInfo

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from skipstone.iceberg.table import TableSnapshot

_KINDS: Final = pa.array(["data", "position deletes", "equality deletes"])
DATA_KINDS: Final = tuple(_KINDS.to_pylist())
MANIFEST, MANIFEST_LIST, STATISTICS, METADATA = "manifest", "manifest list", "statistics", "metadata"
_MANIFESTS_AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True)
class SnapshotManifests:
    """The manifest lists and manifests of some snapshots."""

    lists: tuple[str, ...]
    manifests: tuple[ManifestInfo, ...]
    """Each once."""
    problems: tuple[str, ...] = ()
    """Errors of lists that could not be read."""

    def files(self) -> pa.Table:
        """The lists and manifests as files."""
        lengths = [info.length for info in self.manifests]
        own = files_table([info.path for info in self.manifests], MANIFEST, lengths)
        return pa.concat_tables([own, files_table(self.lists, MANIFEST_LIST)])


def snapshot_manifests(
    table: TableSnapshot, snapshots: Sequence[Snapshot], *, lenient: bool = False
) -> SnapshotManifests:
    """Read the manifest lists of snapshots; ``lenient`` returns errors instead of raising the first."""

    def read(snapshot: Snapshot) -> list[ManifestInfo] | FileError:
        try:
            return table.manifests_of(snapshot)
        except FileError as error:
            if not lenient:
                raise
            return error

    results = gather(read, snapshots, threads=table.access.threads)
    infos = {info.path: info for listed in results if not isinstance(listed, FileError) for info in listed}
    return SnapshotManifests(
        tuple(dict.fromkeys(one.manifest_list for one in snapshots if one.manifest_list)),
        tuple(infos.values()),
        tuple(str(result) for result in results if isinstance(result, FileError)),
    )


def content_files(
    table: TableSnapshot, manifests: Sequence[ManifestInfo], *, lenient: bool = False
) -> tuple[pa.Table, tuple[str, ...]]:
    """The live data and delete files of manifests, and the errors of manifests that could not be read."""
    parts: list[pa.Table] = [FILES.empty_table()]
    problems: list[str] = []
    for start in range(0, len(manifests), _MANIFESTS_AT_ONCE):
        some = manifests[start : start + _MANIFESTS_AT_ONCE]
        try:
            read = table.load_manifests(some)
        except FileError:
            if not lenient:
                raise
            read = []
            for info in some:
                try:
                    read += table.load_manifests([info])
                except FileError as error:
                    problems.append(str(error))
        for part in read:
            own = slice(part.start, part.stop)
            batch = part.batch
            paths = batch.paths.slice(part.start, len(part))
            parts.append(files_table(paths, _KINDS.take(pa.array(batch.contents[own])), batch.sizes[own]))
    return pa.concat_tables(parts), tuple(problems)


def statistics_files(metadata: TableMetadata) -> pa.Table:
    """Statistics files and partition statistics files."""
    every: list[Any] = [*metadata.statistics, *metadata.partition_statistics]
    sizes = [one.file_size_in_bytes for one in every]
    return files_table([one.statistics_path for one in every], STATISTICS, sizes)


def all_files(table: TableSnapshot, metadata_files: Iterable[str]) -> pa.Table:
    """Every file that the table refers to, and the metadata files that are passed."""
    metadata = table.metadata
    listed = snapshot_manifests(table, metadata.snapshots)
    return pa.concat_tables(
        [
            content_files(table, listed.manifests)[0],
            listed.files(),
            statistics_files(metadata),
            files_table([*metadata_files], METADATA),
        ]
    )
