"""One Parquet file on its way to a stage: straight there if that is local, else by a temporary file."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.errors import WriteError
from skipstone.store.durable import make_folders, sync_file
from skipstone.store.place import Place

_PART = 8 << 20


class Sink:
    """A file that is open for row groups; every failure is a WriteError that names it."""

    def __init__(
        self, stage: Place, key: str, options: Mapping[str, Any], metadata: Mapping[str, str] | None = None
    ) -> None:
        self.key = key
        self._stage = stage
        self._metadata = metadata
        self._footers: list[pq.FileMetaData] = []
        with self._failing():
            if stage.local:
                self._path = Path(stage.path(key))
                make_folders(self._path.parent)
            else:
                handle, name = tempfile.mkstemp(prefix="skipstone-", suffix=".parquet")
                os.close(handle)
                self._path = Path(name)
            self._file: pa.NativeFile = pa.OSFile(str(self._path), "wb")
            try:
                self._writer = pq.ParquetWriter(self._file, **options, metadata_collector=self._footers)
            except BaseException:
                self._drop()
                raise

    @property
    def position(self) -> int:
        """Bytes written so far."""
        return int(self._file.tell())

    @property
    def footer(self) -> pq.FileMetaData:
        """The file's footer, once it is closed."""
        return self._footers[0]

    def write(self, rows: pa.Table) -> int:
        """Write one row group, and tell how many bytes it took."""
        with self._failing():
            before = self.position
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            return self.position - before

    def close(self) -> int:
        """Finish the file, bring it to its place for good, and tell its size."""
        with self._failing():
            if self._metadata:
                # With the schema they would go only if Arrow's own went, too.
                self._writer.add_key_value_metadata(dict(self._metadata))
            self._writer.close()
            size = self.position
            self._file.close()
            if self._stage.local:
                sync_file(self._path)
                return size
        try:
            with self._failing():
                self._stage.write(self.key, _parts(self._path))
        finally:
            self._path.unlink(missing_ok=True)
        return size

    def abandon(self) -> None:
        """Leave nothing of the file behind."""
        # Else it would write a footer when it is forgotten.
        self._writer.is_open = False
        self._drop()

    def _drop(self) -> None:
        with contextlib.suppress(pa.ArrowException, OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException, ValueError) as error:
            text = getattr(error, "strerror", None) or str(error)
            raise WriteError(text[:1].lower() + text[1:], path=self._stage.path(self.key)) from error


def _parts(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while part := file.read(_PART):
            yield part
