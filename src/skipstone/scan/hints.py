"""How phase two goes about it: late materialisation or one pass, and how many threads."""

from __future__ import annotations

import os
from collections.abc import Sequence

from skipstone.core.ir import Compiled
from skipstone.lake.files import Files
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.report.trace import Hints
from skipstone.scan.options import ScanOptions
from skipstone.scan.plan import Task
from skipstone.scan.projection import Projection

_SAMPLE = 8
_FAR_THREADS = 16
_FEW_ROWS = 131_072
# What reading and decoding a second time costs, as bytes that could be read and decoded instead.
_SECOND_PASS = 512 * 1024


def choose(
    files: Files,
    tasks: Sequence[Task],
    compiled: Compiled | None,
    projection: Projection,
    options: ScanOptions,
) -> Hints:
    """The way to read ``tasks``, with the reason."""
    mode, why = _materialise(files, tasks, compiled, projection, options)
    return Hints(mode, why, _threads(files, tasks, options), options.batch_rows, options.route)


def _threads(files: Files, tasks: Sequence[Task], options: ScanOptions) -> int:
    """Pieces to decode side by side."""
    if options.threads is not None:
        return options.threads
    if files.place.local and sum([len(task.rows) for task in tasks]) <= _FEW_ROWS:
        # Short pieces spend their time in the interpreter, which one thread at a time can use.
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if files.place.local else max(cores, _FAR_THREADS)


def _materialise(
    files: Files,
    tasks: Sequence[Task],
    compiled: Compiled | None,
    projection: Projection,
    options: ScanOptions,
) -> tuple[str, str]:
    open_tasks = [] if compiled is None else [task for task in tasks if task.residual]
    if compiled is None or not open_tasks:
        return "one-pass", "no row is left to test"
    rest = frozenset(projection.schema.names) - {path[0] for path in compiled.paths}
    if not rest:
        return "one-pass", "the predicate needs every column that is wanted"
    if options.materialise != "auto":
        return options.materialise, "asked for"
    sample = open_tasks[:_SAMPLE]
    # Other columns take at most the whole file's share, for which nothing has to be looked up.
    most = sum([task.entry.size * len(task.rows) / task.rows.total for task in sample])
    if most <= _SECOND_PASS * len(sample):
        return "one-pass", "the other columns take less than another request"
    payload = sum([_payload(files.layout(task.entry), rest, task) for task in sample])
    gap = files.source(sample[0].entry).gap
    if payload <= max(gap, _SECOND_PASS) * len(sample):
        return "one-pass", "the other columns take less than another request"
    return "late", "the other columns are read only where rows match"


def _payload(metadata: ParquetMetadata, names: frozenset[str], task: Task) -> float:
    """About how many bytes the named columns take in the rows of a task."""
    key = (_payload, names)
    size: int | None = metadata.memo.get(key)
    if size is None:
        size = metadata.memo[key] = sum(
            chunk.total_compressed_size
            for name in names
            for leaf in metadata.kin.leaves_of(name)
            for chunk in metadata.chunks(leaf.index)
        )
    return size * len(task.rows) / max(metadata.num_rows, 1)
