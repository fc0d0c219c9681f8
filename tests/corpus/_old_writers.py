"""Libraries of many versions that write small files, each in its own interpreter; see ``_write_old.py``.

``python -m tests.corpus._old_writers`` writes the files that are kept in ``old_writers/`` again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
KEPT = HERE / "old_writers"
_OLD, _NEW = "3.8", "3.11"
_PANDAS = ("pandas<2.2", "numpy<2")


class Writer(NamedTuple):
    """A version of a library, the Python it runs in, what it needs, and which of its files are kept."""

    library: str
    version: str
    python: str
    needs: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.library}-{self.version}"

    def interpreter(self) -> str | None:
        """The interpreter of its Python on this machine, if there is one."""
        if sys.version_info[:2] == tuple(map(int, self.python.split("."))):
            return sys.executable
        found = shutil.which(f"python{self.python}")
        if found is not None and "shims" not in Path(found).parts:  # of pyenv, which need not lead anywhere
            return found
        versions = Path.home() / ".pyenv" / "versions"
        return next((str(path) for path in sorted(versions.glob(f"{self.python}.*/bin/python"))), None)

    def write(self, folder: Path) -> list[Path]:
        """Install the library, and write its files to a folder."""
        interpreter = self.interpreter()
        assert interpreter is not None, f"no Python {self.python}"
        with tempfile.TemporaryDirectory() as packages:
            wanted = [f"{self.library}=={self.version}", *self.needs]
            pip = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--only-binary", ":all:"]
            subprocess.run([*pip, "--python-version", self.python, "--target", packages, *wanted], check=True)
            subprocess.run(
                [interpreter, str(HERE / "_write_old.py"), self.library, str(folder)],
                env={**os.environ, "PYTHONPATH": packages, "PYTHONWARNINGS": "ignore"},
                check=True,
            )
        return sorted(folder.glob("*.parquet"))


WRITERS = (
    *(
        Writer("pyarrow", version, _OLD, ("numpy<1.24",), kept)
        for version, kept in {
            "0.17.1": (),
            "1.0.1": ("dictionary",),
            "2.0.0": (),
            "3.0.0": (),
            "4.0.1": ("dictionary", "pages"),
            "5.0.0": (),
            "6.0.1": ("dictionary",),
            "7.0.0": (),
            "8.0.0": (),
            "9.0.0": (),
        }.items()
    ),
    Writer("pyarrow", "10.0.1", _NEW, ("numpy<2",), ("dictionary", "plain")),
    Writer("pyarrow", "11.0.0", _NEW, ("numpy<2",), ("dictionary",)),
    Writer("pyarrow", "12.0.1", _NEW, ("numpy<2",)),
    Writer("pyarrow", "14.0.2", _NEW, ("numpy<2",)),
    Writer("pyarrow", "18.1.0", _NEW, ("numpy<2",)),
    *(
        Writer("polars", version, _NEW, ("typing_extensions",), kept)
        for version, kept in {
            "0.16.18": (),
            "0.17.15": ("groups",),
            "0.18.15": (),
            "0.19.19": ("groups", "pages"),
            "0.20.0": (),
            "0.20.10": ("groups",),
            "0.20.31": (),
            "1.0.0": ("groups",),
            "1.9.0": (),
            "1.20.0": (),
            "1.31.0": (),
            "1.38.0": ("pages",),
            "1.40.0": ("groups",),
        }.items()
    ),
    *(
        Writer("duckdb", version, _OLD, ("numpy<1.24", "pandas"), kept)
        for version, kept in {"0.3.4": ("groups",), "0.4.0": (), "0.5.1": ()}.items()
    ),
    *(
        Writer("duckdb", version, _NEW, (), kept)
        for version, kept in {
            "0.6.1": (),
            "0.7.1": (),
            "0.8.1": (),
            "0.9.2": ("groups",),
            "0.10.3": ("groups",),
            "1.0.0": (),
            "1.1.3": (),
            "1.2.2": ("groups",),
            "1.4.0": (),
        }.items()
    ),
    Writer("fastparquet", "0.8.3", _OLD, ("numpy<1.24", "pandas<2"), ("groups",)),
    Writer("fastparquet", "2023.10.1", _NEW, _PANDAS),
    Writer("fastparquet", "2024.11.0", _NEW, _PANDAS, ("groups",)),
    *(
        Writer("chdb", version, _NEW, (), kept)
        for version, kept in {
            "1.0.2": (),
            "1.4.1": ("arrow", "own"),
            "2.2.0b1": (),
            "3.6.0": ("own",),
        }.items()
    ),
)


def main() -> None:
    """Write the files that are kept."""
    for writer in WRITERS:
        if writer.kept:
            with tempfile.TemporaryDirectory() as folder:
                for path in writer.write(Path(folder)):
                    if path.stem in writer.kept:
                        shutil.copy(path, KEPT / f"{writer}-{path.name}")


if __name__ == "__main__":
    main()
