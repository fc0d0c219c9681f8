"""Makes Iceberg tables by hand, one snapshot at a time, and knows every row of every snapshot.

No code of pyiceberg writes anything here; only its transforms say which partition a value is in.
"""

from __future__ import annotations

import urllib.parse
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.iceberg._manifests import (
    ADDED,
    DATA,
    DELETED,
    EQUALITY,
    EXISTING,
    POSITIONS,
    Entry,
    File,
    Manifest,
)
from tests.iceberg._metrics import Metrics, measure
from tests.iceberg._parquet import PATH_ID, POS_ID, write_data, write_positions, write_vectors
from tests.iceberg._rows import Rows
from tests.iceberg._specs import Spec
from tests.iceberg._table import Columns, Snapshot, Written, check_file
from tests.iceberg._types import Field, Raw, Struct, all_fields, raw, raw_value, tagged, to_bytes


class Maker(Rows):
    """A table under ``root``; every change writes the next metadata file."""

    def append(
        self,
        rows: pa.Table | Sequence[Mapping[str, Any]] | Columns,
        *,
        spec: int | None = None,
        schema: int | None = None,
        writer: str = "pyarrow",
        metrics: str = "full",
        files: int = 1,
        leave_out: bool = False,
        ids: bool = True,
        old_times: bool = False,
        sequence: int | None = None,
        branch: str = "main",
        **more: Any,
    ) -> Snapshot:
        """Add rows, in so many files per partition.

        ``leave_out`` keeps columns with an identity transform out of the files; without ``ids`` finding
        columns is up to the name mapping; ``old_times`` rounds times before 1970 up, as old writers do;
        ``sequence`` is a data sequence number older than the commit's.
        """
        made = self.files_of(
            rows,
            spec=spec,
            schema=schema,
            writer=writer,
            metrics=metrics,
            files=files,
            leave_out=leave_out,
            ids=ids,
            old_times=old_times,
        )
        return self.commit("append", made, sequence=sequence, branch=branch, **more)

    def files_of(
        self,
        rows: pa.Table | Sequence[Mapping[str, Any]] | Columns,
        *,
        spec: int | None = None,
        schema: int | None = None,
        writer: str = "pyarrow",
        metrics: str = "full",
        files: int = 1,
        leave_out: bool = False,
        ids: bool = True,
        old_times: bool = False,
    ) -> list[File]:
        """Write data files without committing them."""
        fields = self.schemas[self.current_schema if schema is None else schema]
        if not ids:
            check_file(fields, fields, self.schemas, self.names)
        columns = self._columns(rows, fields)
        chosen = self.spec(self.default_spec if spec is None else spec)
        total = len(next(iter(columns.values()), []))
        groups: dict[Any, list[int]] = defaultdict(list)
        for row in range(total):
            key = self.partition(chosen, columns, fields, row, old_times)
            groups[tuple(tagged(v) for v in key)].append(row)
        made = []
        for group in groups.values():
            key = self.partition(chosen, columns, fields, group[0], old_times)
            for part in range(min(files, len(group))):
                mine = {id: [values[row] for row in group[part::files]] for id, values in columns.items()}
                made.append(self._data_file(fields, mine, chosen, key, writer, metrics, leave_out, ids))
        return made

    def empty_file(self, *, spec: int | None = None, partition: tuple[Raw, ...] | None = None) -> File:
        """A data file without rows."""
        chosen = self.spec(self.default_spec if spec is None else spec)
        key = tuple(None for _ in chosen.fields) if partition is None else partition
        columns: Columns = {f.id: [] for f in self.schema}
        return self._data_file(self.schema, columns, chosen, key, "pyarrow", "counts", False, True)

    def _columns(self, rows: Any, fields: Sequence[Field]) -> Columns:
        if isinstance(rows, pa.Table):
            return {f.id: raw(f.type, rows.column(f.name)) for f in fields}
        if isinstance(rows, dict):
            return {f.id: list(rows[f.id]) for f in fields}
        return {f.id: [raw_value(f.type, row.get(f.name)) for row in rows] for f in fields}

    def _data_file(
        self,
        fields: Sequence[Field],
        columns: Columns,
        spec: Spec,
        key: tuple[Raw, ...],
        writer: str,
        mode: str,
        leave_out: bool,
        ids: bool,
    ) -> File:
        constants = {f.source for f in spec.fields if f.transform == "identity"} if leave_out else set()
        stored = [f for f in fields if f.id not in constants]
        rows = len(next(iter(columns.values())))
        place = self._place(spec, key, "parquet")
        used = write_data(place, stored, columns, self.rng, writer=writer, ids=ids, rows=rows)
        # A writer that leaves a column out of the file says nothing about it either.
        found = measure(stored, columns, mode, self.rng)
        words = (
            f"{used}, spec {spec.id} {key}, metrics {mode}{', constants' * leave_out}{', no ids' * (not ids)}"
        )
        file = self._file(place, DATA, spec, key, rows, found, words=words)
        self.written[file.path] = Written(tuple(fields), columns, ids, frozenset(constants))
        return file

    def _place(self, spec: Spec, key: tuple[Raw, ...], ending: str) -> Path:
        parts = []
        for f, value in zip(spec.fields, key, strict=True):
            text = (
                urllib.parse.quote_plus(str(value)[:40]) if self.rng.random() < 0.8 else f"p {len(parts)}%é"
            )
            parts.append(f"{urllib.parse.quote_plus(f.name)}={text}")
        self.clerk.written += 1
        # Writers name files at random: the order of paths is not the order of commits.
        name = f"{self.rng.getrandbits(24):06x}-{self.clerk.written:05d}.{ending}"
        return self.root.joinpath("data", *parts, name)

    def _file(
        self,
        place: Path,
        content: int,
        spec: Spec,
        key: tuple[Raw, ...],
        records: int,
        metrics: Metrics,
        **more: Any,
    ) -> File:
        path = f"{self.location}/{place.relative_to(self.root)}"
        return File(path, place, content, spec, key, records, place.stat().st_size, metrics, **more)

    # -- deletes -------------------------------------------------------------------------------

    def position_files(self, places: Iterable[tuple[str, int]], *, scope: str = "file") -> list[File]:
        """Write position delete files: one per data file, or one per partition."""
        data = {
            e.file.path: e.file for s in self.snapshots.values() for e in s.files if e.file.content == DATA
        }
        groups: dict[Any, list[tuple[str, int]]] = defaultdict(list)
        for path, pos in places:
            file = data[path]
            key = path if scope == "file" else (file.spec.id, tuple(tagged(v) for v in file.partition))
            groups[key].append((path, pos))
        return [self._position_file(data[group[0][0]], group) for group in groups.values()]

    def _position_file(self, data: File, places: list[tuple[str, int]]) -> File:
        spec = self.spec(data.spec.id)
        place = self._place(spec, data.partition, "deletes.parquet")
        rows = write_positions(place, places, self.rng, odd=self.clerk.odd)
        paths = sorted({p for p, _ in places}, key=str.encode)
        mode = self.rng.choice(["full", "truncate", "none"])
        columns = {PATH_ID: [p for p, _ in places], POS_ID: [n for _, n in places]}
        fields = [Field(PATH_ID, "file_path", "string", True), Field(POS_ID, "pos", "long", True)]
        found = measure(fields, columns, mode, self.rng)
        if len(paths) == 1 and found.lower and self.rng.random() < 0.7:  # how writers say "of one file"
            assert found.upper is not None
            found.lower[PATH_ID] = found.upper[PATH_ID] = to_bytes("string", paths[0])
        only = paths[0] if len(paths) == 1 and self.rng.random() < 0.3 else None
        file = self._file(
            place, POSITIONS, spec, data.partition, rows, found, referenced=only, words=f"{mode}"
        )
        self.positions[file] = places
        return file

    def delete_positions(
        self, places: Iterable[tuple[str, int]], *, scope: str = "file", **more: Any
    ) -> Snapshot:
        """Delete these rows by position delete files."""
        return self.commit("delete", self.position_files(places, scope=scope), **more)

    def equality_files(
        self,
        ids: Sequence[int],
        keys: Sequence[tuple[Raw, ...]],
        *,
        partitions: Sequence[tuple[int, tuple[Raw, ...]]] | None = None,
        metrics: str = "full",
        extra: Sequence[int] = (),
    ) -> list[File]:
        """Write one equality delete file for each partition (spec id and values), or a global one."""
        spots = [(self.unpartitioned().id, None)] if partitions is None else partitions
        made = []
        for id, values in spots:
            spec = self.spec(id)
            key = tuple(None for _ in spec.fields) if values is None else values
            place = self._place(spec, key, "equality.parquet")
            fields, columns = self._key_columns(ids, keys)
            for more in extra:
                f = self.field(more)
                if all(f.id != known.id for known in fields):
                    fields.append(f)
                    columns[f.id] = [None for _ in keys]
            write_data(place, fields, columns, self.rng, rows=len(keys))
            found = measure(fields, columns, metrics, self.rng)
            file = self._file(
                place, EQUALITY, spec, key, len(keys), found, equality_ids=tuple(ids), words=f"{ids}"
            )
            self.equal[file] = (tuple(self.field(id) for id in ids), list(keys))
            made.append(file)
        return made

    def _key_columns(
        self, ids: Sequence[int], keys: Sequence[tuple[Raw, ...]]
    ) -> tuple[list[Field], Columns]:
        """The columns of a delete file; a key inside a struct is written inside a struct."""
        tops: dict[int, Field] = {}
        columns: Columns = {}
        for at, id in enumerate(ids):
            way = self._way(id)
            values = [key[at] for key in keys]
            if len(way) == 1:
                tops[id], columns[id] = way[0], values
                continue
            top, leaf = way
            known = tops.get(top.id)
            inner = (*known.type.fields, leaf) if known and isinstance(known.type, Struct) else (leaf,)
            tops[top.id] = replace(top, type=Struct(inner))
            rows = columns.setdefault(top.id, [{} for _ in keys])
            for row, value in zip(rows, values, strict=True):
                row[leaf.id] = value
        return list(tops.values()), columns

    def delete_equal(self, ids: Sequence[int], keys: Sequence[tuple[Raw, ...]], **more: Any) -> Snapshot:
        """Delete rows with these keys by equality delete files."""
        commits = {name: more.pop(name) for name in ("sequence", "branch") if name in more}
        return self.commit("delete", self.equality_files(ids, keys, **more), **commits)

    def delete_vector(self, vectors: Mapping[str, Iterable[int]], *, branch: str = "main") -> Snapshot:
        """Delete rows by deletion vectors: each takes the place of the file's earlier one."""
        parent = self.head(branch)
        assert parent is not None
        place = self.root / "data" / f"{self.rng.getrandbits(32):x}.puffin"
        data = {e.file.path: e.file for e in parent.files if e.file.content == DATA}
        spots = write_vectors(place, {path: sorted({*positions}) for path, positions in vectors.items()})
        made = []
        for path, positions in vectors.items():
            offset, length = spots[path]
            blank = Metrics(None, None, None, None, None, None)
            file = self._file(
                place,
                POSITIONS,
                self.spec(data[path].spec.id),
                data[path].partition,
                len({*positions}),
                blank,
                format="PUFFIN",
                referenced=path,
                offset=offset,
                length=length,
                words="vector",
            )
            self.positions[file] = [(path, pos) for pos in positions]
            made.append(file)
        old = {e.file for e in parent.files if e.file.format == "PUFFIN" and e.file.referenced in vectors}
        return self.commit("delete", made, removed=old, branch=branch)

    # -- commits -------------------------------------------------------------------------------

    def remove_files(self, paths: Collection[str], *, branch: str = "main") -> Snapshot:
        """Take files out of the table."""
        return self.commit("delete", removed=self._named(paths, branch), branch=branch)

    def overwrite(self, rows: Any, paths: Collection[str], *, branch: str = "main", **more: Any) -> Snapshot:
        """Take files out and put rows in."""
        return self.commit(
            "overwrite", self.files_of(rows, **more), removed=self._named(paths, branch), branch=branch
        )

    def _named(self, paths: Collection[str], branch: str) -> set[File]:
        parent = self.head(branch)
        assert parent is not None
        return {e.file for e in parent.files if e.file.path in paths}

    def commit(
        self,
        operation: str,
        added: Sequence[File] = (),
        *,
        removed: Collection[File] = (),
        sequence: int | None = None,
        branch: str = "main",
        merge: bool | None = None,
    ) -> Snapshot:
        """One snapshot: files in, files out; new entries in manifests of their own or in merged ones."""
        id, number = self._begin()
        parent = self.head(branch)
        kept: list[Manifest] = []
        for manifest in parent.manifests if parent else ():
            if any(e.file in removed for e in manifest.live):
                entries = [
                    replace(e, status=DELETED if e.file in removed else EXISTING)
                    if e.file not in removed
                    else replace(e, status=DELETED, snapshot=id)
                    for e in manifest.live
                ]
                kept.append(self._manifest(entries, id, number))
            elif manifest.live:
                kept.append(manifest)
        groups: dict[tuple[int, int], list[Entry]] = defaultdict(list)
        for file in added:
            pinned = number if sequence is None else sequence
            groups[file.spec.id, min(file.content, 1)].append(Entry(ADDED, file, pinned, id))
        for entries in groups.values():
            merged = self.rng.random() < 0.25 if merge is None else merge
            joined = self._mergeable(kept, entries[0]) if merged else None
            if joined is not None:
                kept.remove(joined)
                entries = [*(replace(e, status=EXISTING) for e in joined.live), *entries]
            cut = (
                self.rng.randrange(1, len(entries))
                if len(entries) > 2 and self.rng.random() < 0.3
                else len(entries)
            )
            kept += [self._manifest(part, id, number) for part in (entries[:cut], entries[cut:]) if part]
        if self.rng.random() < 0.3:
            self.rng.shuffle(kept)
        return self._finish(id, number, parent, kept, operation, branch)

    def _mergeable(self, kept: list[Manifest], entry: Entry) -> Manifest | None:
        same = (entry.file.spec.id, min(entry.file.content, 1))
        found = [m for m in kept if (m.spec.id, m.content) == same and m.live]
        return self.rng.choice(found) if found else None

    def rewrite_manifests(self, *, branch: str = "main") -> Snapshot:
        """The same files in other manifests, as existing entries."""
        parent = self.head(branch)
        assert parent is not None
        id, number = self._begin()
        groups: dict[tuple[int, int, int], list[Entry]] = defaultdict(list)
        for entry in parent.files:
            key = entry.file.spec.id, min(entry.file.content, 1), self.rng.randrange(2)
            groups[key].append(replace(entry, status=EXISTING))
        manifests = [self._manifest(entries, id, number) for entries in groups.values()]
        return self._finish(id, number, parent, manifests, "replace", branch)

    def _begin(self) -> tuple[int, int]:
        if self.version > 1:
            self.sequence += 1
        return self.rng.getrandbits(62), self.sequence if self.version > 1 else 0

    def _manifest(self, entries: Sequence[Entry], snapshot: int, sequence: int) -> Manifest:
        spec = self.spec(entries[0].file.spec.id)
        now = [replace(e, file=replace(e.file, spec=spec)) if e.file.spec != spec else e for e in entries]
        for before, after in zip(entries, now, strict=True):
            self._same(before.file, after.file)
        # Sources of old specs may be gone from the schema: the newest schemas that had them speak for them.
        sources = {f.source for f in spec.fields}
        missing = sources - {f.id for _, f in all_fields(self.schema)}
        fields = [*self.schema, *(self.field(id) for id in sorted(missing))]
        made = self.clerk.manifest(now, fields, snapshot, sequence, self.current_schema)
        if self.version > 2 and made.content == 0:
            made = replace(made, first_row=self.next_row)
            self.next_row += sum(e.file.records for e in made.live)
        return made

    def _same(self, old: File, new: File) -> None:
        """What is known of a file holds when it is told of under a wider partition type."""
        if old is not new:
            if old in self.positions:
                self.positions[new] = self.positions[old]
            if old in self.equal:
                self.equal[new] = self.equal[old]

    def _finish(
        self,
        id: int,
        sequence: int,
        parent: Snapshot | None,
        manifests: Sequence[Manifest],
        operation: str,
        branch: str,
    ) -> Snapshot:
        location = self.clerk.manifest_list(manifests, id, parent.id if parent else None, sequence)
        self.clock += 10_000
        added = sum(e.file.records for m in manifests for e in m.live if e.snapshot == id and m.content == 0)
        first = self.snapshots[parent.id].first_row if parent else 0
        made = Snapshot(
            id,
            parent.id if parent else None,
            sequence,
            self.clock,
            self.current_schema,
            tuple(manifests),
            location,
            operation,
            max(first, self.next_row - added),
            added,
        )
        self.snapshots[id] = made
        self.refs[branch] = id, "branch"
        if branch == "main":
            self.log.append((self.clock, id))
        self.save()
        return made
