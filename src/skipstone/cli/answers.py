"""Answers of aggregates on their way to people or programs, whole or while they improve."""

from __future__ import annotations

import enum
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skipstone.cli.output import Screen, emit, json_text, screen
from skipstone.cli.sink import open_output

if TYPE_CHECKING:
    import pyarrow as pa

    from skipstone.aggregate.aggregation import Aggregation
    from skipstone.aggregate.progress import Step
    from skipstone.report.lines import Span
    from skipstone.report.trace.aggregate import AggregateTrace
    from skipstone.scan.lake import Lake


class AnswerFormat(enum.StrEnum):
    """How answers are written."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


@dataclass(frozen=True, slots=True)
class Shown:
    """An answer, and what it took."""

    answer: Aggregation
    lake: Lake
    grouped: bool
    began: float

    def put(
        self, table: pa.Table, format: AnswerFormat, output: Path | None, *, explain: bool, force: bool
    ) -> None:
        """Write the whole answer."""
        if format is AnswerFormat.TEXT:
            on = screen()
            color = on.color and output is None
            text = _painted([*self._lines(table, self.answer.bounds, on), [], self._spent()], color=color)
        elif format is AnswerFormat.JSON:
            text = json_text(self._document(table, explain=explain))
        else:
            self._rows(table, format, output, force=force)
            return
        if output is None:
            emit(text)
        else:
            with open_output(output, force=force) as out:
                out.write(f"{text}\n".encode())

    def explained(self, on: Screen) -> str:
        """What was known, what was read, and why."""
        from skipstone.report import draw_aggregate

        return draw_aggregate(self.answer.trace, width=on.width, color=on.color)

    # -- for people --------------------------------------------------------------------------

    def _lines(self, table: pa.Table, bounds: Mapping[str, Any], on: Screen) -> list[list[Span]]:
        from skipstone.cli.answers_text import draw_answer

        return list(draw_answer(table, bounds, on.width, grouped=self.grouped))

    def _spent(self) -> list[Span]:
        """What the answer took: rows, requests, bytes, time."""
        from skipstone.report.units import count, duration, plural
        from skipstone.report.words import cost

        trace, io = self.answer.trace, self.lake.io
        rows, read = plural(trace.rows, "row"), _read_rows(trace)
        said = f"read {count(read)} of {rows} that may count" if read else f"{rows} known from metadata"
        spent = f" · {cost(io.requests, io.bytes)} · {duration(time.perf_counter() - self.began)}"
        return [(said, "bold"), (spent, "dim")]

    # -- for programs ------------------------------------------------------------------------

    def _rows(self, table: pa.Table, format: AnswerFormat, output: Path | None, *, force: bool) -> None:
        from skipstone.cli.formats import row_writer

        with open_output(output, force=force) as out:
            writer = row_writer(format, table.schema, out)
            for batch in table.combine_chunks().to_batches():
                writer.write(batch)
            writer.finish()

    def _document(self, table: pa.Table, *, explain: bool) -> dict[str, Any]:
        from skipstone.report import aggregate_to_json

        trace, io = self.answer.trace, self.lake.io
        read = _read_rows(trace)
        return {
            "answer": _records(table),
            "bounds": _plain_bounds(self.answer.bounds),
            "rows": trace.rows,
            "from_metadata": trace.rows - read,
            "read": read,
            "engine": trace.run.engine if trace.run is not None else None,
            "files": len(self.lake.entries),
            "requests": io.requests,
            "bytes": io.bytes,
            "seconds": round(time.perf_counter() - self.began, 6),
            **({"explain": aggregate_to_json(trace)} if explain else {}),
        }

    # -- while it improves -------------------------------------------------------------------

    def stream(self, format: AnswerFormat) -> None:
        """Show answers as they come: in place on a terminal, else one after the other."""
        found = self.answer.stream()
        if format is AnswerFormat.JSON:
            for step in found:
                emit(json.dumps(_step_document(step), allow_nan=False))
        elif sys.stdout.isatty():
            self._live(found)
        else:
            for step in found:
                emit(_painted([*self._step(step, screen()), []], color=False))

    def _step(self, step: Step, on: Screen) -> list[list[Span]]:
        from skipstone.report.units import bar, percent, plural

        filled, empty = bar(step.covered, 1.0, 20)
        left = f"  {percent(step.covered, 1.0)}, {plural(step.rows_left, 'row')} to go"
        said = self._spent() if step.final else [(filled, "kept"), (empty, "dropped"), (left, "dim")]
        return [*self._lines(step.to_arrow(), step.bounds, on), [], said]

    def _live(self, found: Iterator[Step]) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(console=Console(), auto_refresh=False, vertical_overflow="crop") as live:
            for step in found:
                on = screen()
                drawn = Text.from_ansi(_painted(self._step(step, on), color=on.color))
                live.update(drawn, refresh=True)


def _painted(lines: Sequence[list[Span]], *, color: bool) -> str:
    from skipstone.report.lines import paint

    return "\n".join(paint(line, color=color) for line in lines)


def _read_rows(trace: AggregateTrace) -> int:
    """Rows that are read for at least one column."""
    return max((use.read for use in trace.columns), default=0)


def _records(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as JSON has them; sums of whole numbers are numbers, whatever their size."""
    import pyarrow as pa

    from skipstone.cli.values import json_objects

    batches = table.combine_chunks().to_batches()
    texts = [
        text for batch in batches for text in json_objects(table.schema.names, batch.columns, len(batch))
    ]
    records = [json.loads(text.as_py()) for text in texts]
    whole = [field.name for field in table.schema if pa.types.is_decimal(field.type) and not field.type.scale]
    for record in records:
        record.update({name: int(record[name]) for name in whole if record[name] is not None})
    return records


def _plain_bounds(bounds: Mapping[str, Any]) -> dict[str, Any]:
    """The bounds of estimates; where there are none, null."""
    return {
        name: None if pair is None else {"lower": _json(pair[0]), "upper": _json(pair[1])}
        for name, pair in bounds.items()
    }


def _json(value: Any) -> Any:
    import pyarrow as pa

    from skipstone.cli.values import json_texts

    return json.loads(json_texts(pa.array([value]))[0].as_py())


def _step_document(step: Step) -> dict[str, Any]:
    return {
        "covered": step.covered,
        "rows_done": step.rows_done,
        "rows_left": step.rows_left,
        "final": step.final,
        "answer": _records(step.to_arrow()),
        "bounds": _plain_bounds(step.bounds),
    }
