"""A lake of sales for aggregates: ids that count up, times that rise with noise, customers in no order."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import Progress

from benchmarks.lakes import Lake, kept

ROWS, FILES = 20_000_000, 20
GROUPS = 4
FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
NOISE = 3_600 * SECOND
"""By how much a sale's time may be later than its place says: most pages overlap their neighbours."""
QUANTITIES = 100
SALES_EACH = 10
REGIONS = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")


@dataclass(frozen=True, slots=True)
class Sales:
    """The rows, one a second on average, in files of the same size."""

    rows: int = ROWS
    files: int = FILES
    seed: int = 0

    @property
    def file_rows(self) -> int:
        """Rows of each file."""
        return self.rows // self.files

    @property
    def customers(self) -> int:
        """How many customers there may be."""
        return max(self.rows // SALES_EACH, 1)

    def block(self, number: int) -> pa.Table:
        """The rows of one file."""
        rng = np.random.default_rng((self.seed, number))
        rows = self.file_rows
        nth = np.arange(number * rows, (number + 1) * rows)
        first = int(FIRST_DAY.timestamp()) * SECOND
        times = first + nth * SECOND + rng.integers(0, NOISE, rows)
        return pa.table(
            {
                "id": nth,
                "customer": rng.integers(0, self.customers, rows),
                "amount": rng.lognormal(3.0, 1.2, rows).round(2),
                "quantity": rng.integers(1, QUANTITIES + 1, rows, dtype=np.int32),
                "ts": pa.array(times, pa.timestamp("us", "UTC")),
                "region": pa.array(REGIONS).take(pa.array(rng.integers(0, len(REGIONS), rows))),
            }
        )

    def time(self, nth: int) -> datetime:
        """The least time that a row may have."""
        return FIRST_DAY + timedelta(seconds=nth)

    def write(self, folder: Path, console: Console) -> None:
        """Write every file, with page indexes and pages of 20,000 rows at most."""
        with Progress(console=console, transient=True) as progress:
            for number in progress.track(range(self.files), description=folder.name):
                pq.write_table(
                    self.block(number),
                    folder / f"sales-{number:05d}.parquet",
                    compression="zstd",
                    row_group_size=-(-self.file_rows // GROUPS),
                    max_rows_per_page=20_000,
                    write_page_index=True,
                    use_dictionary=["quantity", "region"],
                )


def sales_lake(sales: Sales, data: Path, console: Console) -> Lake:
    """The sales on disk."""
    folder = data / f"sales{sales.files}-{sales.rows}-{sales.seed}"
    return Lake("sales", kept(folder, lambda to: sales.write(to, console), console))
