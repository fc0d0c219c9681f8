"""How an embedded catalog writes local files: on disk before the catalog names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from skipstone.store.durable import make_folders, sync_file
from skipstone.store.scattered import local_name


class DurableFileIO(PyArrowFileIO):  # type: ignore[misc]
    """What pyiceberg reads and writes with; local files are on disk when they are closed.

    A catalog commits durably, and would otherwise name metadata that a power cut has lost.
    """

    def new_output(self, location: str) -> OutputFile:
        """A file to write."""
        made, path = super().new_output(location), local_name(location)
        return made if path is None else _LocalFile(made, Path(path))


class _LocalFile(OutputFile):  # type: ignore[misc]
    def __init__(self, made: OutputFile, path: Path) -> None:
        super().__init__(made.location)
        self._made = made
        self._path = path

    def __len__(self) -> int:
        return len(self._made)

    def exists(self) -> bool:
        return bool(self._made.exists())

    def to_input_file(self) -> Any:
        return self._made.to_input_file()

    def create(self, overwrite: bool = False) -> pa.NativeFile:
        if not overwrite and self.exists():
            raise FileExistsError(f"the file exists already: {self.location}")
        make_folders(self._path.parent)
        return _SyncedFile(str(self._path), "wb")


class _SyncedFile(pa.OSFile):  # type: ignore[misc]
    # pyarrow opens the file before this, from the same arguments.
    def __init__(self, path: str, _mode: str) -> None:
        self._path = Path(path)

    def close(self) -> None:
        if not self.closed:
            super().close()
            sync_file(self._path)
