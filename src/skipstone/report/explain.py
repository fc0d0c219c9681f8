"""Views of the traces of pruning, scans and aggregations.

lake/events  user_id = 42
│  12 files, version 1f3a, columns user_id, amount
├─ files  ██░░░░░░░░░░░░░░░░░░  kept 1 of 12 (8.3 %), 10,000 rows
│     11 dropped by bounds  user_id = 42
└─ read   █░░░░░░░░░░░░░░░░░░░  80.0 kB of 9.6 MB (0.8 %)
      from  1 of 12 files, about 2 requests
      rows  10,000 of 120,000 rows may match (8.3 %), 0 proven
      test  user_id = 42

The filled part of a bar was kept, so a good skip is an almost empty bar. An aggregation adds a branch per
column, whose bar shows the rows that are read, answered from metadata, and skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skipstone.report.node import (
    Bar,
    Facts,
    Items,
    NodePart,
    ReportNode,
    TableColumn,
    Text,
    fields,
    number,
    table,
    text,
)
from skipstone.report.trace import (
    AggregateRun,
    AggregateTrace,
    Cause,
    ColumnUse,
    DeleteUse,
    FilterStats,
    IndexUse,
    Level,
    LevelAnswer,
    MemberUse,
    Note,
    Phase,
    Run,
    ScanTrace,
    SparkUse,
    Trace,
)
from skipstone.report.units import cost, count, duration, percent, phrase, plural, share, size, some

EVERY_ROW = "every row"
_NOTHING_TO_READ = "nothing to read"
_CAUSES = {Cause.BLOOM: "bloom filter", Cause.PAGE: "page index"}
_SPARK_ROUTES = {"driver": "read by the driver", "slices": "page slices", "reader": "Spark's own reader"}
_INKS = {"files": "files", "row groups": "groups", "pages": "pages", "rows": "values"}
_LEGEND = (("kept", "read"), ("files", "answered from metadata"), ("line", "skipped"))


def prune_tree(trace: Trace) -> ReportNode:
    """The cascade over one file."""
    rows = "the file has no rows" if trace.rows == 0 else _matching(trace, plural(trace.rows, "row"))
    said = Text(rows, "bold", 1, aside=f"metadata read: {cost(trace.requests, trace.bytes)}")
    levels = tuple(_level(level, costs=False) for level in trace.levels)
    tail = (said, Items("not prunable", trace.unsupported), Items("notes", list(map(_note, trace.notes))))
    return ReportNode(trace.path, trace.predicate, "code", children=levels, tail=tail)


def ranges_tree(row_groups: Sequence[int], ranges: Sequence[tuple[int, int]]) -> ReportNode:
    """Row groups and ranges of rows that may match."""
    groups = f"row groups: {', '.join(map(str, row_groups)) or 'none'}"
    rows = [f"rows {count(start)} to {count(stop - 1)}  ({count(stop - start)})" for start, stop in ranges]
    return ReportNode(body=tuple(map(Text, (groups, *rows))))


def scan_tree(trace: ScanTrace) -> ReportNode:
    """The plan of a scan, and its run if there was one."""
    columns = f"columns {', '.join(trace.columns)}" if trace.columns else "no columns"
    reads, run = trace.reads, trace.run
    requests = trace.requests + (reads.requests if reads is not None else 0)
    read = _bytes(trace)
    return ReportNode(
        trace.lake,
        trace.predicate or EVERY_ROW,
        "code",
        body=_about(trace, columns),
        figures=(
            ("rows", count(trace.rows_kept), _scan_rows(trace)),
            ("data read" if run else "data to read", size(read), share(read, reads.of_bytes, size))
            if reads
            else None,
            ("requests", count(requests), f"{count(trace.requests)} for {size(trace.bytes)} of metadata"),
            ("run time", duration(run.seconds), f"{plural(run.rows, 'row')}, {_work(run)}") if run else None,
        ),
        children=(*(_level(level) for level in trace.levels), _read(trace), _scan_run(run) if run else None),
        tail=(Items("not prunable", trace.unsupported), Items("notes", _notes(trace))),
    )


def aggregate_tree(trace: AggregateTrace) -> ReportNode:
    """The plan of an aggregation, the source of each answer, and its run if there was one."""
    scan, run = trace.scan, trace.run
    groups = f" by {', '.join(trace.group_by)}" if trace.group_by else ""
    read = trace.rows_read
    return ReportNode(
        scan.lake,
        scan.predicate or EVERY_ROW,
        "code",
        body=(
            Text(f"{', '.join(trace.functions)}{groups}"),
            Text("" if trace.cached else "use_cached is off: every row that may qualify is read"),
            *_about(scan),
        ),
        figures=(
            ("rows that count", count(trace.rows), _counting(trace)),
            ("from metadata", count(trace.rows - read), percent(trace.rows - read, trace.rows)),
            ("rows to read", count(read), f"{percent(read, scan.rows)} of all rows"),
            ("run time", duration(run.seconds), f"on {run.engine}") if run else None,
        ),
        children=(
            *map(_level, scan.levels),
            _members(trace.members) if trace.members else None,
            _rows(trace),
            *(_column(use, trace) for use in trace.columns),
            _aggregate_run(run) if run else None,
        ),
        legend=_LEGEND,
        tail=(Items("not prunable", scan.unsupported), Items("notes", [*trace.notes, *_notes(scan)])),
    )


def cause_name(cause: Cause) -> str:
    """The evidence as people call it."""
    return _CAUSES.get(cause, cause.value)


# -- levels ------------------------------------------------------------------------------------


def _level(level: Level, *, costs: bool = True) -> ReportNode:
    drops = sorted(level.drops, key=lambda drop: -drop.units)
    digits = max((len(count(drop.units)) for drop in drops), default=0)
    said = lambda drop: f"{count(drop.units):>{digits}} dropped by {cause_name(drop.cause)}"  # noqa: E731
    columns = TableColumn("", said, style="dim"), text("", lambda drop: (drop.condition, "code"))
    spent = _metadata_cost(level) if costs else ""
    reasons = table(drops, *columns, notes=(spent,) if spent else (), most=(3, "reason"))
    return ReportNode(level.name, _level_statement(level), bar=_level_bar(level), body=(reasons,))


def _level_statement(level: Level) -> tuple[str, ...]:
    if level.units == 0:
        return ("nothing to judge",)
    said = f"kept {share(level.kept, level.units)}"
    proven = f", {count(level.whole)} proven" if level.whole else ""
    rows = f", {plural(level.rows, 'row')}" if level.kept and level.rows is not None else ""
    return said + proven + rows, said + rows, said


def _level_bar(level: Level) -> Bar:
    """A level's units: proven, kept, and dropped by each cause."""
    dropped = {cause: sum(drop.units for drop in level.drops if drop.cause is cause) for cause in Cause}
    causes = [NodePart(cause.value, n, f"dropped by {cause_name(cause)}") for cause, n in dropped.items()]
    other = NodePart("other", max(level.dropped - sum(dropped.values()), 0), "dropped otherwise")
    kept = (NodePart("proven", level.whole, "proven"), NodePart("kept", level.kept - level.whole, "kept"))
    return Bar((*kept, *causes, other), level.units)


# -- the lake ----------------------------------------------------------------------------------


def _about(trace: ScanTrace, columns: str = "") -> tuple[Text, ...]:
    """The state of the lake, and the use of its index, partitions and delete files."""
    version = f"version {trace.version}" if trace.version else ""
    return (
        Text(phrase(plural(trace.files, "file"), version, columns, by=", "), "dim", 2),
        Text(_index(trace.index, trace.files) if trace.index else "", "dim", 1),
        Text(_partitions(trace.partitions) if trace.partitions else "", "dim"),
        Text(_deletes(trace.deletes) if trace.deletes else "", "dim"),
        Text(str(trace.overlay or ""), "dim"),
    )


def _index(use: IndexUse, files: int) -> str:
    if not use.version:
        return "the index is not used"
    covered = f"{count(use.covered) if use.covered else 'none'} of {plural(files, 'file')}"
    return f"index version {count(use.version)} covers {covered}"


def _partitions(stats: FilterStats) -> str:
    """Partitions of a table that could not be judged; empty if all could."""
    files = plural(stats.fail_open_files, "file")
    parts = phrase(
        some(stats.fail_open_partitions, "partition", f" ({files}) kept without a verdict"),
        some(stats.unevaluable_specs, "partition spec", " can't be evaluated"),
        some(stats.eval_errors, "evaluation", " failed"),
    )
    without = " without a field from the predicate's columns"
    return phrase(parts, some(stats.unconstrained_specs, "partition spec", without)) if parts else ""


def _deletes(use: DeleteUse) -> str:
    verb = "applies" if use.applied == 1 else "apply"
    return phrase(
        f"{count(use.applied)} of {plural(use.files, 'delete file')} {verb}",
        some(use.rows, "row", " deleted by position"),
        some(use.tested, "file", " checked against equality deletes", "rows of "),
    )


def _note(note: Note) -> str:
    return f"{note.unit}: {note.reason}"


def _notes(trace: ScanTrace) -> list[str]:
    """Parts of the index, then metadata of files, that could not be used."""
    problems = trace.index.problems if trace.index is not None else ()
    return [*map(_problem, problems), *map(_note, trace.notes)]


def _problem(problem: str) -> str:
    """The name of a part and its problem, or only the latter if it is about the entire index."""
    name, colon, reason = problem.partition(": ")
    part = colon and " " not in name
    return f"index: {name} ignored: {reason}" if part else f"index ignored: {problem}"


def _matching(trace: Trace | ScanTrace, rows: str) -> str:
    if trace.rows_kept == 0:
        return f"none of {rows} can match"
    part = percent(trace.rows_kept, trace.rows)
    return f"{count(trace.rows_kept)} of {rows} may match ({part}), {count(trace.rows_whole)} proven"


def _scan_rows(trace: ScanTrace) -> str:
    if trace.files == 0:
        return "the lake has no files"
    if trace.rows == 0:
        return "no rows remain"
    if not trace.predicate and trace.rows_kept == trace.rows:
        return f"all {_rows_seen(trace)}"
    return _matching(trace, _rows_seen(trace))


def _rows_seen(trace: ScanTrace) -> str:
    """Rows of the files whose metadata was read; marked if these are not all files."""
    unseen = any(level.rows is None and level.dropped for level in trace.levels)
    return plural(trace.rows, "row") + (" looked at" if unseen else "")


# -- scans -------------------------------------------------------------------------------------


def _read(trace: ScanTrace) -> ReportNode:
    reads, files = trace.reads, f"{count(trace.tasks)} of {plural(trace.files, 'file')}"
    bar, said, source = None, files, ""
    if trace.tasks == 0:
        said = _NOTHING_TO_READ
    elif reads is not None:
        said = share(_bytes(trace), reads.of_bytes, size)
        bar = Bar.of(_bytes(trace), reads.of_bytes) if reads.of_bytes else None
        source = f"{files}, about {plural(reads.requests, 'request')}"
    how = _how(trace) if trace.tasks else ()
    pairs = (("from", source), ("rows", _scan_rows(trace)), *how, ("cost", _metadata_cost(trace)))
    return ReportNode("read", said, bar=bar, body=(Facts(pairs, ("test",) if trace.residual else ()),))


def _bytes(trace: ScanTrace) -> int:
    """Bytes of data that were read, or that are to be read at most."""
    return trace.run.bytes if trace.run else trace.reads.bytes if trace.reads else 0


def _metadata_cost(of: ScanTrace | Level) -> str:
    return f"metadata read: {cost(of.requests, of.bytes)}" if of.requests or of.bytes else ""


def _how(trace: ScanTrace) -> Iterator[tuple[str, str]]:
    """The condition that is tested on rows, and how rows are read."""
    hints = trace.hints
    threads, rows = plural(hints.threads, "thread"), plural(hints.batch_rows, "row")
    yield "test", trace.residual or "none: every row is proven to match"
    yield "how", f"{hints.materialise}: {hints.why}" if hints.why else hints.materialise
    yield "with", f"{threads}, route {hints.route}, batches of up to {rows}"
    yield "spark", _spark(trace.spark) if trace.spark is not None else ""
    yield (trace.engine.engine, str(trace.engine)) if trace.engine is not None else ("engine", "")
    yield "limit", plural(trace.limit, "row") if trace.limit is not None else ""
    yield "order", ", ".join(trace.order)


def _spark(use: SparkUse) -> str:
    tasks = f", {plural(use.tasks, 'file' if use.route == 'reader' else 'task')}" if use.tasks else ""
    return f"{_SPARK_ROUTES[use.route]}{tasks}: {use.why}"


def _scan_run(run: Run) -> ReportNode:
    batches = plural(run.batches, "batch", "batches")
    said = f"{plural(run.rows, 'row')} in {batches}, {duration(run.seconds)}"
    return _run(said, _work(run), run.phases)


def _run(said: str, work: str, phases: Sequence[Phase]) -> ReportNode:
    spent = table(
        phases,
        *fields(text, "phase=name"),
        *fields(number, "rows", "requests"),
        number("bytes", lambda phase: size(phase.bytes)),
        number("time", lambda phase: duration(phase.seconds)),
    )
    return ReportNode("ran", said, body=(Text(work, most=1), spent))


def _work(run: Run | AggregateRun) -> str:
    parts = plural(run.pieces, "part of a row group", "parts of row groups") if run.pieces else "nothing"
    return f"read {parts} in {cost(run.requests, run.bytes)}"


# -- aggregations ------------------------------------------------------------------------------


def _members(use: MemberUse) -> ReportNode:
    kept = use.units - use.outside
    said = f"kept {count(kept)} of {plural(use.units, 'row group')} ({percent(kept, use.units)})"
    inside = f", {count(use.inside)} entirely inside" if use.inside else ""
    sizes = {"proven": use.inside, "kept": use.partly, "other": use.outside}
    meanings = ("entirely inside", "partly inside", "without a member")
    bar = Bar(tuple(map(NodePart, sizes, sizes.values(), meanings)), use.units)
    outside = some(use.rows_outside, "row", " proven not to be members")
    below = tuple(Text(line, "dim", 1) for line in (*use.sets, outside))
    return ReportNode("members", said + inside if use.units else "no row groups remain", bar=bar, body=below)


def _rows(trace: AggregateTrace) -> ReportNode:
    scan, test = trace.scan, trace.scan.residual if trace.rows else ""
    data = share(scan.reads.bytes, scan.reads.of_bytes, size) if scan.reads is not None else ""
    facts = Facts((("test", test), ("data", data), ("cost", _metadata_cost(scan))), ("test",))
    return ReportNode("rows", _counting(trace), bar=Bar.of(trace.rows, scan.rows), body=(facts,))


def _counting(trace: AggregateTrace) -> str:
    scan = trace.scan
    if scan.rows == 0:
        return _scan_rows(scan)
    if trace.rows in (0, scan.rows):
        return (
            f"all {_rows_seen(scan)} may qualify" if trace.rows else f"none of {_rows_seen(scan)} can count"
        )
    return f"{count(trace.rows)} of {_rows_seen(scan)} may qualify ({percent(trace.rows, scan.rows)})"


def _column(use: ColumnUse, trace: AggregateTrace) -> ReportNode:
    answered = [
        NodePart(_INKS[part.level], part.rows, f"answered from {part.level.replace('rows', 'values')}")
        for part in use.answered
    ]
    skipped = NodePart("line", max(trace.scan.rows - use.rows_answered - use.read, 0), "skipped")
    bar = Bar((NodePart("kept", use.read, "read"), *answered, skipped), trace.scan.rows)
    sources = ", ".join(_answered(part) for part in use.answered if part.units)
    reasons = [("" if place else "why", reason) for place, reason in enumerate(use.why)]
    facts = Facts((("for", ", ".join(use.functions) if use.column else ""), ("from", sources), *reasons))
    return ReportNode(use.column or "count", _read_share(use), bar=bar, body=(facts,))


def _answered(part: LevelAnswer) -> str:
    if part.level == "rows":
        return plural(part.rows, "other row")
    return f"{plural(part.units, part.level.removesuffix('s'))} ({plural(part.rows, 'row')})"


def _read_share(use: ColumnUse) -> str:
    rows = use.rows_answered + use.read
    if use.read == rows:
        return some(rows, "row", before="reads ") or "no row counts"
    if use.read == 0:
        return f"{plural(rows, 'row')} answered from metadata"
    return f"reads {count(use.read)} of {plural(rows, 'row')} ({percent(use.read, rows)})"


def _aggregate_run(run: AggregateRun) -> ReportNode:
    # Reads of other processes are not counted here.
    remote = run.pieces and not run.requests
    work = f"in {plural(run.pieces, 'part')}, whose requests are not counted here" if remote else _work(run)
    said = f"{plural(run.rows, 'row')} read and aggregated on {run.engine}, {duration(run.seconds)}"
    return _run(said, work, run.phases)
