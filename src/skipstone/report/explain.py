"""The traces of pruning, scans and aggregations as trees.

lake/events  user_id = 42
│  12 files, version 1f3a, columns user_id, amount
├─ files  ██░░░░░░░░░░░░░░░░░░  kept 1 of 12 (8.3 %), 10,000 rows
│     11 dropped by bounds  user_id = 42
└─ read   █░░░░░░░░░░░░░░░░░░░  80.0 kB of 9.6 MB (0.8 %)
      from  1 of 12 files, about 2 requests
      rows  10,000 of 120,000 rows may match (8.3 %), 0 proven
      test  user_id = 42

The filled part of a bar is what was kept, so a good skip is an almost empty bar. An aggregation adds a
branch per column, whose bar shows what is read, what metadata answers, and what is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skipstone.report.node import (
    Bar,
    Block,
    Facts,
    Figure,
    Items,
    NodePart,
    NodeTable,
    ReportNode,
    TableColumn,
    Text,
    number,
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
    Reads,
    Run,
    ScanTrace,
    SparkUse,
    Trace,
)
from skipstone.report.units import count, duration, percent, plural, size

EVERY_ROW = "every row"
_NOTHING_TO_READ = "nothing to read"
_TOP_DROPS = 3
_CAUSES = {Cause.BLOOM: "bloom filter", Cause.PAGE: "page index"}
_SPARK_ROUTES = {"driver": "read by the driver", "slices": "page slices", "reader": "Spark's own reader"}
_KNOWN = {"files": "files", "row groups": "groups", "pages": "pages", "rows": "values"}
_LEGEND = (("kept", "read"), ("files", "known from metadata"), ("line", "skipped"))


def prune_tree(trace: Trace) -> ReportNode:
    """The cascade over one file."""
    found = "the file has no rows" if trace.rows == 0 else _matching(trace, plural(trace.rows, "row"))
    return ReportNode(
        trace.path,
        trace.predicate,
        "code",
        children=tuple(_level(level, costs=False) for level in trace.levels),
        tail=(
            Text(found, "bold", 1, aside=f"metadata read: {cost(trace.requests, trace.bytes)}"),
            Items("not judged", trace.unsupported),
            Items("notes", [_note(note) for note in trace.notes]),
        ),
    )


def scan_tree(trace: ScanTrace) -> ReportNode:
    """The plan of a scan, and what a run of it did."""
    columns = f"columns {', '.join(trace.columns)}" if trace.columns else "no columns"
    ran = [_ran_scan(trace.run)] if trace.run is not None else []
    return ReportNode(
        trace.lake,
        trace.predicate or EVERY_ROW,
        "code",
        body=tuple(_about(trace, f"{_state(trace)}, {columns}")),
        figures=tuple(_scan_figures(trace)),
        children=(*(_level(level, costs=True) for level in trace.levels), _read(trace), *ran),
        tail=(Items("not judged", trace.unsupported), Items("notes", _notes(trace))),
    )


def aggregate_tree(trace: AggregateTrace) -> ReportNode:
    """The plan of an aggregation, where each answer comes from, and what a run of it did."""
    scan = trace.scan
    groups = f" by {', '.join(trace.group_by)}" if trace.group_by else ""
    asked = [Text(f"{', '.join(trace.functions)}{groups}")]
    if not trace.cached:
        asked.append(Text("use_cached is off: every row that may count is read"))
    return ReportNode(
        scan.lake,
        scan.predicate or EVERY_ROW,
        "code",
        body=(*asked, *_about(scan, _state(scan))),
        figures=tuple(_aggregate_figures(trace)),
        children=(
            *(_level(level, costs=True) for level in scan.levels),
            *([_members(trace.members)] if trace.members is not None else []),
            _rows(trace),
            *(_column(use, trace) for use in trace.columns),
            *([_ran_aggregate(trace.run)] if trace.run is not None else []),
        ),
        legend=_LEGEND,
        tail=(Items("not judged", scan.unsupported), Items("notes", [*trace.notes, *_notes(scan)])),
    )


def cost(requests: int, nbytes: int) -> str:
    """Requests and the bytes they returned."""
    return f"{plural(requests, 'request')}, {size(nbytes)}"


def cause_name(cause: Cause) -> str:
    """The evidence as people call it."""
    return _CAUSES.get(cause, cause.value)


# -- levels ------------------------------------------------------------------------------------


def _level(level: Level, *, costs: bool) -> ReportNode:
    spent = f"metadata read: {cost(level.requests, level.bytes)}"
    drops = sorted(level.drops, key=lambda drop: -drop.units)
    digits = max((len(count(drop.units)) for drop in drops), default=0)
    table = NodeTable(
        (TableColumn(style="dim"), text("")),
        [
            (f"{count(drop.units):>{digits}} dropped by {cause_name(drop.cause)}", (drop.condition, "code"))
            for drop in drops
        ],
        notes=(spent,) if costs and (level.requests or level.bytes) else (),
        most=_TOP_DROPS,
        noun="reason",
    )
    return ReportNode(level.name, _kept(level), bar=_level_bar(level), body=(table,))


def _kept(level: Level) -> tuple[str, ...]:
    if level.units == 0:
        return ("nothing to judge",)
    said = f"kept {count(level.kept)} of {count(level.units)} ({percent(level.kept, level.units)})"
    proven = f", {count(level.whole)} proven" if level.whole else ""
    rows = f", {plural(level.rows, 'row')}" if level.kept and level.rows is not None else ""
    return said + proven + rows, said + rows, said


def _level_bar(level: Level) -> Bar:
    """A level's units: proven, kept, and dropped by each cause."""
    dropped = {cause: sum(drop.units for drop in level.drops if drop.cause is cause) for cause in Cause}
    parts = (
        NodePart("proven", level.whole, "proven"),
        NodePart("kept", level.kept - level.whole, "kept"),
        *(
            NodePart(cause.value, units, f"dropped by {cause_name(cause)}")
            for cause, units in dropped.items()
        ),
        NodePart("other", max(level.dropped - sum(dropped.values()), 0), "dropped otherwise"),
    )
    return Bar(parts, level.units)


# -- what was scanned --------------------------------------------------------------------------


def _state(trace: ScanTrace) -> str:
    version = [f"version {trace.version}"] if trace.version else []
    return ", ".join([plural(trace.files, "file"), *version])


def _about(trace: ScanTrace, what: str) -> Iterator[Text]:
    """What was scanned, and what its index, partitions and delete files mean for it."""
    yield Text(what, "dim", 2)
    if trace.index is not None:
        yield Text(_index(trace.index, trace.files), "dim", 1, hint=trace.index.place)
    if trace.partitions is not None and (said := _partitions(trace.partitions)):
        yield Text(said, "dim")
    if trace.deletes is not None:
        yield Text(_deletes(trace.deletes), "dim")


def _index(use: IndexUse, files: int) -> str:
    if not use.version:
        return "the index is not used"
    covered = f"{count(use.covered) if use.covered else 'none'} of {plural(files, 'file')}"
    return f"index version {count(use.version)} covers {covered}"


def _partitions(stats: FilterStats) -> str:
    """What could not be judged of a table's partitions; empty where all could be, or there was no filter."""
    parts = []
    if stats.fail_open_partitions:
        kept = plural(stats.fail_open_partitions, "partition")
        parts.append(f"{kept} ({plural(stats.fail_open_files, 'file')}) kept without a verdict")
    if stats.unevaluable_specs:
        parts.append(f"{plural(stats.unevaluable_specs, 'partition spec')} can't be evaluated")
    if stats.eval_errors:
        parts.append(f"{plural(stats.eval_errors, 'evaluation')} failed")
    if stats.unconstrained_specs and parts:
        silent = plural(stats.unconstrained_specs, "partition spec")
        parts.append(f"{silent} without a field from the predicate's columns")
    return "; ".join(parts)


def _deletes(use: DeleteUse) -> str:
    verb = "applies" if use.applied == 1 else "apply"
    parts = [f"{count(use.applied)} of {plural(use.files, 'delete file')} {verb}"]
    if use.rows:
        parts.append(f"{plural(use.rows, 'row')} deleted by position")
    if use.tested:
        parts.append(f"rows of {plural(use.tested, 'file')} checked against equality deletes")
    return "; ".join(parts)


def _note(note: Note) -> str:
    return f"{note.unit}: {note.reason}"


def _notes(trace: ScanTrace) -> list[str]:
    """What could not be used: parts of the index, then metadata of files."""
    problems = trace.index.problems if trace.index is not None else ()
    return [*map(_problem, problems), *map(_note, trace.notes)]


def _problem(problem: str) -> str:
    """A part's name and what is wrong with it, or only the latter where it is the whole index."""
    name, found, reason = problem.partition(": ")
    part = found and " " not in name
    return f"index: {name} ignored: {reason}" if part else f"index ignored: {problem}"


def _matching(trace: Trace | ScanTrace, rows: str) -> str:
    if trace.rows_kept == 0:
        return f"none of {rows} can match"
    share = percent(trace.rows_kept, trace.rows)
    return f"{count(trace.rows_kept)} of {rows} may match ({share}), {count(trace.rows_whole)} proven"


def _scan_rows(trace: ScanTrace) -> str:
    if trace.files == 0:
        return "the lake has no files"
    if trace.rows == 0:
        return "no rows left to look at"
    if not trace.predicate and trace.rows_kept == trace.rows:
        return f"all {_rows_seen(trace)}"
    return _matching(trace, _rows_seen(trace))


def _rows_seen(trace: ScanTrace) -> str:
    """The rows of the footers that were read, and the word that says so where it wasn't the whole lake."""
    unseen = any(level.rows is None and level.dropped for level in trace.levels)
    return plural(trace.rows, "row") + (" looked at" if unseen else "")


# -- what a scan reads -------------------------------------------------------------------------


def _read(trace: ScanTrace) -> ReportNode:
    reads, files = trace.reads, f"{count(trace.tasks)} of {plural(trace.files, 'file')}"
    pairs = [("rows", _scan_rows(trace))]
    bar, said = None, files
    if trace.tasks == 0:
        said = _NOTHING_TO_READ
    elif reads is not None:
        said = _share(reads)
        bar = Bar.of(reads.bytes, reads.of_bytes) if reads.of_bytes else None
        pairs.insert(0, ("from", f"{files}, about {plural(reads.requests, 'request')}"))
    if trace.tasks:
        pairs += _how(trace)
    if trace.requests or trace.bytes:
        pairs.append(("cost", f"metadata read: {cost(trace.requests, trace.bytes)}"))
    return ReportNode("read", said, bar=bar, body=(Facts(pairs, ("test",) if trace.residual else ()),))


def _share(reads: Reads) -> str:
    if reads.of_bytes == 0:
        return size(reads.bytes)
    return f"{size(reads.bytes)} of {size(reads.of_bytes)} ({percent(reads.bytes, reads.of_bytes)})"


def _how(trace: ScanTrace) -> Iterator[tuple[str, str]]:
    """What is left to do on rows, and how."""
    hints = trace.hints
    yield "test", trace.residual or "nothing left to test"
    yield "how", f"{hints.materialise}: {hints.why}" if hints.why else hints.materialise
    threads, rows = plural(hints.threads, "thread"), plural(hints.batch_rows, "row")
    yield "with", f"{threads}, route {hints.route}, batches of up to {rows}"
    if trace.spark is not None:
        yield "spark", _spark(trace.spark)
    if trace.limit is not None:
        yield "limit", plural(trace.limit, "row")
    if trace.order:
        yield "order", ", ".join(trace.order)


def _spark(use: SparkUse) -> str:
    tasks = f", {plural(use.tasks, 'file' if use.route == 'reader' else 'task')}" if use.tasks else ""
    return f"{_SPARK_ROUTES[use.route]}{tasks}: {use.why}"


def _ran_scan(run: Run) -> ReportNode:
    batches = plural(run.batches, "batch", "batches")
    return _ran(f"{plural(run.rows, 'row')} in {batches}, {duration(run.seconds)}", _work(run), run.phases)


def _ran(said: str, work: str, phases: Sequence[Phase]) -> ReportNode:
    columns = (text("phase"), number("rows"), number("requests"), number("bytes"), number("time"))
    rows = [(p.name, count(p.rows), count(p.requests), size(p.bytes), duration(p.seconds)) for p in phases]
    body: tuple[Block, ...] = (Text(work, most=1), *([NodeTable(columns, rows)] if rows else []))
    return ReportNode("ran", said, body=body)


def _work(run: Run | AggregateRun) -> str:
    pieces = f"{plural(run.pieces, 'piece')} of row groups" if run.pieces else "no row group"
    return f"read {pieces} in {cost(run.requests, run.bytes)}"


def _scan_figures(trace: ScanTrace) -> Iterator[Figure]:
    parts = (
        NodePart("proven", trace.rows_whole, "proven"),
        NodePart("kept", trace.rows_kept - trace.rows_whole, "may match"),
    )
    yield Figure("rows", count(trace.rows_kept), _scan_rows(trace), Bar(parts, trace.rows))
    reads = trace.reads
    if reads is not None:
        share = f"{percent(reads.bytes, reads.of_bytes)} of the columns' {size(reads.of_bytes)}"
        aside = share if reads.of_bytes else _NOTHING_TO_READ
        yield Figure("data to read", size(reads.bytes), aside, Bar.of(reads.bytes, reads.of_bytes, "read"))
    data = reads.requests if reads is not None else 0
    aside = f"{count(trace.requests)} for {size(trace.bytes)} of metadata"
    aside += f", about {count(data)} for data" if data else ""
    spent = (NodePart("other", trace.requests, "for metadata"), NodePart("kept", data, "for data"))
    yield Figure("requests", count(trace.requests + data), aside, Bar(spent, trace.requests + data))
    files = Bar.of(trace.tasks, trace.files, "read")
    yield Figure("files to read", count(trace.tasks), f"of {plural(trace.files, 'file')}", files)
    if trace.run is not None:
        run = trace.run
        yield Figure("ran", duration(run.seconds), f"{plural(run.rows, 'row')}, {_work(run)}")


# -- aggregations ------------------------------------------------------------------------------


def _members(use: MemberUse) -> ReportNode:
    kept = use.units - use.outside
    said = f"kept {count(kept)} of {plural(use.units, 'row group')} ({percent(kept, use.units)})"
    if use.units == 0:
        said = "no row group left to look at"
    elif use.inside:
        said += f", {count(use.inside)} entirely inside"
    parts = (
        NodePart("proven", use.inside, "entirely inside"),
        NodePart("kept", use.partly, "partly inside"),
        NodePart("other", use.outside, "without a member"),
    )
    outside = f"{plural(use.rows_outside, 'row')} proven not to be members" if use.rows_outside else ""
    below = tuple(Text(said, "dim", 1) for said in (*use.sets, outside) if said)
    return ReportNode("members", said, bar=Bar(parts, use.units), body=below)


def _rows(trace: AggregateTrace) -> ReportNode:
    scan = trace.scan
    pairs = [("test", scan.residual)] if scan.residual and trace.rows else []
    if scan.reads is not None:
        pairs.append(("data", _share(scan.reads)))
    if scan.requests or scan.bytes:
        pairs.append(("cost", f"metadata read: {cost(scan.requests, scan.bytes)}"))
    return ReportNode(
        "rows", _counting(trace), bar=Bar.of(trace.rows, scan.rows), body=(Facts(pairs, ("test",)),)
    )


def _counting(trace: AggregateTrace) -> str:
    scan = trace.scan
    if scan.rows == 0:
        return _scan_rows(scan)
    if trace.rows == 0:
        return f"none of {_rows_seen(scan)} can count"
    if trace.rows == scan.rows:
        return f"all {_rows_seen(scan)} may count"
    return f"{count(trace.rows)} of {_rows_seen(scan)} may count ({percent(trace.rows, scan.rows)})"


def _column(use: ColumnUse, trace: AggregateTrace) -> ReportNode:
    known = [
        NodePart(
            _KNOWN[part.level], part.rows, f"known from {'values' if part.level == 'rows' else part.level}"
        )
        for part in use.answered
    ]
    skipped = max(trace.scan.rows - use.known - use.read, 0)
    bar = Bar(
        (NodePart("kept", use.read, "read"), *known, NodePart("line", skipped, "skipped")), trace.scan.rows
    )
    pairs = [("for", ", ".join(use.functions))] if use.column else []
    if answered := ", ".join(_answered(part) for part in use.answered if part.units):
        pairs.append(("from", answered))
    pairs += [("" if place else "why", reason) for place, reason in enumerate(use.why)]
    return ReportNode(use.column or "count", _read_share(use), bar=bar, body=(Facts(pairs),))


def _answered(part: LevelAnswer) -> str:
    if part.level == "rows":
        return plural(part.rows, "other row")
    return f"{plural(part.units, part.level.removesuffix('s'))} ({plural(part.rows, 'row')})"


def _read_share(use: ColumnUse) -> str:
    rows = use.known + use.read
    if rows == 0:
        return "no row counts"
    if use.read == 0:
        return f"{plural(rows, 'row')} known from metadata"
    if use.known == 0:
        return f"reads {plural(rows, 'row')}"
    return f"reads {count(use.read)} of {plural(rows, 'row')} ({percent(use.read, rows)})"


def _ran_aggregate(run: AggregateRun) -> ReportNode:
    # What other processes read is not counted here.
    far = run.pieces and not run.requests
    work = f"in {plural(run.pieces, 'part')}, whose requests are not counted here" if far else _work(run)
    said = f"{plural(run.rows, 'row')} read and aggregated on {run.engine}, {duration(run.seconds)}"
    return _ran(said, work, run.phases)


def _aggregate_figures(trace: AggregateTrace) -> Iterator[Figure]:
    scan = trace.scan
    # A row that one column needs is read, even if metadata answers for all the others.
    read = max((use.read for use in trace.columns), default=0)
    known = trace.rows - read
    yield Figure("rows that count", count(trace.rows), _counting(trace), Bar.of(trace.rows, scan.rows))
    aside = f"{percent(known, trace.rows)} of the rows that may count"
    yield Figure("from metadata", count(known), aside, Bar((NodePart("files", known, "known"),), trace.rows))
    aside = f"{percent(read, scan.rows)} of all rows"
    yield Figure("read", count(read), aside, Bar.of(read, scan.rows, "read"))
    if trace.run is not None:
        yield Figure("ran", duration(trace.run.seconds), f"on {trace.run.engine}")
        yield Figure("data read", size(trace.run.bytes), plural(trace.run.requests, "request"))
    elif scan.reads is not None:
        requests = f"about {plural(scan.reads.requests, 'request')}"
        yield Figure("data to read", size(scan.reads.bytes), requests)
