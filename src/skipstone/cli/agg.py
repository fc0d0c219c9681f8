"""``skipstone agg``: counts, sums, quantiles and other aggregates of the matching rows."""

from __future__ import annotations

import enum
import json
import operator
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipstone.cli.options import (
    ClusterOptions,
    ConditionOptions,
    EngineName,
    EngineOption,
    ForceOption,
    LakeArgument,
    OutputOption,
    ReadOptions,
    SkippingOption,
    engine_arguments,
    grouped,
    job_guarded,
    named_columns,
    named_format,
)
from skipstone.cli.output import (
    check_output,
    drawn,
    emit,
    json_text,
    open_output,
    refuse_terminal,
    show_on_stderr,
    write_text,
)
from skipstone.cli.progress import progress, steps

if TYPE_CHECKING:
    import pyarrow as pa

    from skipstone.aggregate.aggregation import Aggregation
    from skipstone.aggregate.answer import Step
    from skipstone.report.node import ReportNode
    from skipstone.scan.lake import Lake
    from skipstone.typing import GroupByLike

_members = partial(typer.Option, rich_help_panel="Row sets")


class AnswerFormat(enum.StrEnum):
    """Formats of answers."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


@dataclass(frozen=True, slots=True)
class IdOptions:
    """Sets of ids or row numbers to include or exclude."""

    ids: Annotated[
        list[Path] | None,
        _members(
            "--ids",
            dir_okay=False,
            allow_dash=True,
            metavar="FILE",
            help="Include only rows with ids in FILE: a serialized roaring bitmap, a text file with an id "
            "per line, a .npy array, or a Parquet file with the id column or a single column. "
            "Use - for standard input; repeatable, an id must be in all files.",
        ),
    ] = None
    not_ids: Annotated[
        list[Path] | None,
        _members(
            "--not-ids",
            dir_okay=False,
            allow_dash=True,
            metavar="FILE",
            help="Exclude rows with ids in FILE, in a format of --ids; rows without an id are included.",
        ),
    ] = None
    id_column: Annotated[
        str | None,
        _members(
            "--id-column",
            metavar="COLUMN",
            help="Column that contains the ids. Default: ids are row numbers in the lake, from 0, with files "
            "sorted by path.",
        ),
    ] = None

    def check(self) -> None:
        """Reject a column without ids."""
        if self.id_column is not None and not (self.ids or self.not_ids):
            raise typer.BadParameter("needs --ids or --not-ids", param_hint="--id-column")

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``aggregate``."""
        return {
            "within": self._one_set(self.ids, operator.and_),
            "without": self._one_set(self.not_ids, operator.or_),
        }

    def _one_set(self, paths: Sequence[Path] | None, join: Any) -> Any:
        if not paths:
            return None
        import skipstone as sk
        from skipstone.aggregate.id_files import read_ids

        column = self.id_column
        return reduce(join, (sk.members(read_ids(path, column), column) for path in paths))


@grouped
def agg(
    lake: LakeArgument,
    functions: Annotated[
        str,
        typer.Argument(
            metavar="FUNCTIONS",
            help='Aggregates, as in a SELECT list: "count(*), sum(price * amount) as total". Functions: '
            "count, count(distinct x), count_if(x > 0), sum, min, max, avg, var, var_pop, stddev, "
            "stddev_pop, approx_distinct, median, quantile(x, 0.9), approx_quantile(x, 0.9), "
            "histogram(x, 10), first(x, ts), last(x, ts). Write lists as array(0.5, 0.9).",
        ),
    ],
    *,
    condition: ConditionOptions,
    group_by: Annotated[
        list[str] | None,
        typer.Option(
            "--group-by",
            "--by",
            metavar="A,B",
            help='Columns or expressions to group by: "country, year(ts) as year".',
        ),
    ] = None,
    members: IdOptions,
    cached: Annotated[
        bool,
        typer.Option(
            "--cached/--no-cached",
            help="Answer from metadata where possible.",
        ),
    ] = True,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Show intermediate answers; with json, one object per line, the last one final.",
        ),
    ] = False,
    format: Annotated[
        AnswerFormat | None,
        typer.Option(
            "--format",
            help="Output format; csv, parquet and arrow have a row per group. "
            "Default: by the extension of --output, else text.",
        ),
    ] = None,
    output: OutputOption = None,
    force: ForceOption = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Also explain the aggregation, on standard error."),
    ] = False,
    skipping: SkippingOption = True,
    engine: EngineOption = EngineName.LOCAL,
    cluster: ClusterOptions,
    reading: ReadOptions,
) -> None:
    """Aggregate the matching rows, from metadata where possible."""
    engine_arguments(engine, cluster, reading.threads)
    check_output(output, force=force)
    format = format or named_format(output, AnswerFormat, AnswerFormat.TEXT)
    members.check()
    if stream and output is not None:
        raise typer.BadParameter("--stream writes to standard output only", param_hint="--output")
    if stream and format not in (AnswerFormat.TEXT, AnswerFormat.JSON):
        raise typer.BadParameter("--stream needs text or json", param_hint="--format")
    if format in (AnswerFormat.PARQUET, AnswerFormat.ARROW):
        refuse_terminal(format, output)
    began = time.perf_counter()
    with job_guarded(), ExitStack() as stack:
        from skipstone.aggregate.select import read_functions, read_keys

        aggregates = read_functions(functions, condition.dialect, condition.tz)
        spark, session = engine is EngineName.SPARK, None
        scan = condition.scan(lake, reading, skipping=skipping, spark=spark)
        names: GroupByLike = named_columns(group_by, "--group-by") or []
        if group_by and not set(names) <= set(scan.lake.schema.names):
            names = read_keys(", ".join(group_by), condition.dialect, condition.tz)
        if spark:
            with steps("starting Spark"):
                session = stack.enter_context(cluster.session())
        answer = scan.aggregate(
            *aggregates,
            group_by=names,
            use_cached=cached,
            engine=session,
            **members.arguments(),
        )
        shown = _Answer(answer, scan.lake, bool(group_by), began)
        if stream:
            shown.stream(format)
        else:
            with progress("aggregating", scan.lake):
                table = answer.to_arrow()
            shown.put(table, format, output, explain=explain, force=force)
        if explain and format is not AnswerFormat.JSON:
            show_on_stderr(answer.trace)


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer and its output."""

    answer: Aggregation
    lake: Lake
    grouped: bool
    began: float

    def put(
        self, table: pa.Table, format: AnswerFormat, output: Path | None, *, explain: bool, force: bool
    ) -> None:
        """Write the answer."""
        if format is AnswerFormat.TEXT:
            tree = self._tree(table, self.answer.bounds)
            write_text(drawn(tree, color=output is None), output, force=force)
        elif format is AnswerFormat.JSON:
            write_text(json_text(self._document(table, explain=explain)), output, force=force)
        else:
            from skipstone.scan.formats import row_writer

            with open_output(output, force=force) as out:
                writer = row_writer(format, table.schema, out)
                for batch in table.combine_chunks().to_batches():
                    writer.write(batch)
                writer.finish()

    def _tree(self, table: pa.Table, bounds: Mapping[str, Any]) -> ReportNode:
        from skipstone.report.units import cost, duration
        from skipstone.scan.row_view import answer_tree

        io, seconds = self.lake.io, duration(time.perf_counter() - self.began)
        return answer_tree(table, bounds, self.answer.trace, f"{cost(io.requests, io.bytes)} · {seconds}")

    def _document(self, table: pa.Table, *, explain: bool) -> dict[str, Any]:
        trace, io = self.answer.trace, self.lake.io
        read = trace.rows_read
        return {
            "answer": _records(table),
            "bounds": _bounds(self.answer.bounds),
            "rows": trace.rows,
            "from_metadata": trace.rows - read,
            "read": read,
            "engine": trace.run.engine if trace.run is not None else None,
            "files": len(self.lake.entries),
            "requests": io.requests,
            "bytes": io.bytes,
            "seconds": round(time.perf_counter() - self.began, 6),
            **({"explain": trace.to_json()} if explain else {}),
        }

    def stream(self, format: AnswerFormat) -> None:
        """Write intermediate answers: in place on a terminal, else below each other."""
        answers = self.answer.stream()
        if format is AnswerFormat.JSON:
            for step in answers:
                emit(json.dumps(_step_document(step), allow_nan=False))
        elif sys.stdout.isatty():
            self._live(answers)
        else:
            for step in answers:
                emit(drawn(self._step(step), color=False) + "\n")

    def _step(self, step: Step) -> ReportNode:
        if step.final:
            return self._tree(step.to_arrow(), step.bounds)
        from skipstone.scan.row_view import step_tree

        return step_tree(step.to_arrow(), step.bounds, step.covered, step.rows_left, grouped=self.grouped)

    def _live(self, answers: Iterator[Step]) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(console=Console(), auto_refresh=False, vertical_overflow="crop") as live:
            for step in answers:
                live.update(Text.from_ansi(drawn(self._step(step))), refresh=True)


def _records(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as JSON; sums of integers are numbers of any size."""
    import pyarrow as pa

    from skipstone.scan.formats import json_objects

    batches = table.combine_chunks().to_batches()
    texts = [
        text for batch in batches for text in json_objects(table.schema.names, batch.columns, len(batch))
    ]
    records = [json.loads(text.as_py()) for text in texts]
    whole = [field.name for field in table.schema if pa.types.is_decimal(field.type) and not field.type.scale]
    for record in records:
        record.update({name: int(record[name]) for name in whole if record[name] is not None})
    return records


def _bounds(bounds: Mapping[str, Any]) -> dict[str, Any]:
    """The bounds of estimates; null if there are none."""
    import pyarrow as pa

    from skipstone.scan.formats import json_texts

    ends_by_name: dict[str, Any] = {}
    for name, pair in bounds.items():
        ends = None if pair is None else [json.loads(json_texts(pa.array([end]))[0].as_py()) for end in pair]
        ends_by_name[name] = None if ends is None else {"lower": ends[0], "upper": ends[1]}
    return ends_by_name


def _step_document(step: Step) -> dict[str, Any]:
    return {
        "covered": step.covered,
        "rows_done": step.rows_done,
        "rows_left": step.rows_left,
        "final": step.final,
        "answer": _records(step.to_arrow()),
        "bounds": _bounds(step.bounds),
    }
