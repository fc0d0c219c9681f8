"""How others read a directory of Parquet files: each gives the number of its rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def _polars(root: Path) -> int:
    import polars as pl

    return int(pl.scan_parquet(root).select(pl.len()).collect().item())


def _duckdb(glob: str) -> Callable[[Path], int]:
    def read(root: Path) -> int:
        import duckdb

        with duckdb.connect() as connection:
            found = connection.execute(f"select count(*) from read_parquet('{root}/{glob}')").fetchall()
        return int(found[0][0])

    return read


def _pandas(root: Path) -> int:
    import pandas as pd

    return len(pd.read_parquet(root))


def _pyarrow(root: Path) -> int:
    import pyarrow.dataset as ds

    return int(ds.dataset(root, format="parquet", partitioning="hive").count_rows())


def _datafusion(root: Path) -> int:
    import datafusion

    context = datafusion.SessionContext()
    context.register_parquet("lake", str(root))
    return int(context.sql("select count(*) n from lake").to_pydict()["n"][0])


READERS: dict[str, Callable[[Path], int]] = {
    "polars": _polars,
    "duckdb **": _duckdb("**"),
    "duckdb **/*.parquet": _duckdb("**/*.parquet"),
    "pandas": _pandas,
    "pyarrow": _pyarrow,
    "datafusion": _datafusion,
}
