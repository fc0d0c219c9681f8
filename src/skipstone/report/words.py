"""What a trace says in words, shared by everything that draws one."""

from __future__ import annotations

from collections.abc import Sequence

from skipstone.report.trace import Cause, Drop, Level, Note
from skipstone.report.trace.aggregate import AggregateRun
from skipstone.report.trace.partitions import FilterStats
from skipstone.report.trace.scan import DeleteUse, Hints, IndexUse, Reads, Run, ScanTrace, SparkUse
from skipstone.report.units import count, percent, plural, size

EVERY_ROW = "every row"
NOTHING_TO_READ = "nothing to read"
NOTHING_TO_TEST = "nothing left to test"
SPARK_ROUTES = {
    "driver": "read by the driver",
    "slices": "page slices",
    "reader": "Spark's own reader",
}
_CAUSES = {Cause.BLOOM: "bloom filter", Cause.PAGE: "page index"}


def cause_name(cause: Cause) -> str:
    """The evidence as people call it."""
    return _CAUSES.get(cause, cause.value)


def ranked(drops: Sequence[Drop]) -> list[Drop]:
    """Drops, the largest first."""
    return sorted(drops, key=lambda drop: -drop.units)


def kept_share(level: Level) -> str:
    """How many units a level kept."""
    if level.units == 0:
        return "nothing to judge"
    return f"kept {count(level.kept)} of {count(level.units)} ({percent(level.kept, level.units)})"


def rows_left(level: Level) -> str:
    """The rows a level left; empty where that is unknown or goes without saying."""
    return plural(level.rows, "row") if level.kept and level.rows is not None else ""


def cost(requests: int, nbytes: int) -> str:
    """Requests and the bytes they brought."""
    return f"{plural(requests, 'request')}, {size(nbytes)}"


def rows_found(kept: int, whole: int, rows: str, of: int) -> str:
    """How many of ``of`` rows, called ``rows``, may match; there is at least one."""
    if kept == 0:
        return f"none of {rows} can match"
    return f"{count(kept)} of {rows} may match ({percent(kept, of)}), {count(whole)} proven"


def scan_rows(trace: ScanTrace) -> str:
    """How many rows a scan may give."""
    if trace.files == 0:
        return "the lake has no files"
    if trace.rows == 0:
        return "no rows left to look at"
    if not trace.predicate and trace.rows_kept == trace.rows:
        return f"all {rows_seen(trace)}"
    return rows_found(trace.rows_kept, trace.rows_whole, rows_seen(trace), trace.rows)


def rows_seen(trace: ScanTrace) -> str:
    """The rows that were looked at, and the word that says so where it wasn't the whole lake."""
    unseen = any(level.rows is None and level.dropped for level in trace.levels)
    return plural(trace.rows, "row") + (" looked at" if unseen else "")


def scan_files(trace: ScanTrace) -> str:
    """How many of the lake's files a scan reads."""
    return f"{count(trace.tasks)} of {plural(trace.files, 'file')}"


def data_share(reads: Reads) -> str:
    """The bytes a scan means to read, of those its columns have."""
    if reads.of_bytes == 0:
        return size(reads.bytes)
    return f"{size(reads.bytes)} of {size(reads.of_bytes)} ({percent(reads.bytes, reads.of_bytes)})"


def scan_facts(trace: ScanTrace) -> list[tuple[str, str]]:
    """What is left to do on rows, and how, as labels and values."""
    hints = trace.hints
    facts = [
        ("test", trace.residual or NOTHING_TO_TEST),
        ("how", f"{hints.materialise}: {hints.why}" if hints.why else hints.materialise),
        ("with", _workers(hints)),
    ]
    if trace.spark is not None:
        facts.append(("spark", spark_words(trace.spark)))
    if trace.limit is not None:
        facts.append(("limit", plural(trace.limit, "row")))
    if trace.order:
        facts.append(("order", ", ".join(trace.order)))
    return facts


def spark_words(use: SparkUse) -> str:
    """How a data frame is made of the scan."""
    tasks = f", {plural(use.tasks, 'file' if use.route == 'reader' else 'task')}" if use.tasks else ""
    return f"{SPARK_ROUTES[use.route]}{tasks}: {use.why}"


def _workers(hints: Hints) -> str:
    threads, rows = plural(hints.threads, "thread"), plural(hints.batch_rows, "row")
    return f"{threads}, route {hints.route}, batches of up to {rows}"


def lake_line(trace: ScanTrace) -> str:
    """What was scanned: files, version, columns."""
    columns = f"columns {', '.join(trace.columns)}" if trace.columns else "no columns"
    return f"{state_line(trace)}, {columns}"


def state_line(trace: ScanTrace) -> str:
    """How many files the lake has, and in which version."""
    version = [f"version {trace.version}"] if trace.version else []
    return ", ".join([plural(trace.files, "file"), *version])


def run_work(run: Run | AggregateRun) -> str:
    """What a run worked through."""
    pieces = f"{plural(run.pieces, 'piece')} of row groups" if run.pieces else "no row group"
    return f"read {pieces} in {cost(run.requests, run.bytes)}"


def note_text(note: Note) -> str:
    """A note on one line."""
    return f"{note.unit}: {note.reason}"


def index_line(use: IndexUse, files: int) -> str:
    """What the index knew of the lake's files."""
    if not use.version:
        return "the index is not used"
    known = f"{count(use.covered) if use.covered else 'none'} of {plural(files, 'file')}"
    return f"index version {count(use.version)} knows {known}"


def partition_line(stats: FilterStats) -> str:
    """What could not be judged of a table's partitions; empty where all could be, or nothing was asked."""
    parts = []
    if stats.fail_open_partitions:
        kept = plural(stats.fail_open_partitions, "partition")
        parts.append(f"{kept} ({plural(stats.fail_open_files, 'file')}) kept without a judgement")
    if stats.unevaluable_specs:
        parts.append(f"{plural(stats.unevaluable_specs, 'partition spec')} can't be evaluated")
    if stats.eval_errors:
        parts.append(f"{plural(stats.eval_errors, 'evaluation')} failed")
    if stats.unconstrained_specs and parts:
        silent = plural(stats.unconstrained_specs, "partition spec")
        parts.append(f"{silent} without a field made from the predicate's columns")
    return "; ".join(parts)


def delete_line(use: DeleteUse) -> str:
    """What delete files take away from what is kept."""
    parts = [f"{count(use.applied)} of {plural(use.files, 'delete file')} bear on what is kept"]
    if use.rows:
        parts.append(f"{plural(use.rows, 'row')} deleted by position")
    if use.tested:
        parts.append(f"rows of {plural(use.tested, 'file')} compared with deleted values")
    return "; ".join(parts)


def scan_notes(trace: ScanTrace) -> list[str]:
    """What could not be used: parts of the index, then metadata of files."""
    problems = trace.index.problems if trace.index is not None else ()
    return [*map(_problem_text, problems), *map(note_text, trace.notes)]


def _problem_text(problem: str) -> str:
    """A part's name and what is wrong with it, or only the latter where it is the whole index."""
    name, found, reason = problem.partition(": ")
    part = found and " " not in name
    return f"index: {name} ignored: {reason}" if part else f"index ignored: {problem}"
