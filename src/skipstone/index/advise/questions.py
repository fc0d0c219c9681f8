"""The queries of a workload: predicates with weights, or the lines of a query log."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.core.filter import fix_clock, settle
from skipstone.core.ir import compile_predicate
from skipstone.core.ir.nodes import AndNode, Node
from skipstone.errors import ParseError, PredicateError, ReadError, SkipstoneError, UsageError
from skipstone.index.advise.advice import RefusedQuery
from skipstone.predicate import Expr, Predicate
from skipstone.predicate import predicate as to_predicate
from skipstone.predicate.tree import Constant

# Of more distinct queries, this many are sampled by weight.
_MOST_QUESTIONS = 400
_MOST_REFUSED = 1_000
_MOST_TEXT = 500
_COMMENTS = ("--", "#")
_SELECT = re.compile(r"(select|with)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SampleQuery:
    """A predicate bound to the lake's schema, with its weight."""

    node: Node
    columns: tuple[tuple[str, ...], ...]
    """All columns of the predicate, including those that metadata can't judge."""
    weight: float

    def conjuncts(self, path: tuple[str, ...]) -> tuple[Node, ...]:
        """Return the conjuncts that metadata judges by a column."""
        parts = self.node.args if isinstance(self.node, AndNode) else (self.node,)
        return tuple(part for part in parts if any(ref.path == path for ref in part.refs()))


@dataclass(frozen=True, slots=True)
class Workload:
    """The distinct queries, the number of queries understood, and those that were not."""

    questions: tuple[SampleQuery, ...]
    understood: int = 0
    refused: tuple[RefusedQuery, ...] = ()


def bind(predicate: Predicate, schema: pa.Schema, weight: float) -> SampleQuery:
    """Bind a predicate to a schema."""
    predicate = settle(predicate, schema)
    return SampleQuery(compile_predicate(predicate, schema).node, predicate.columns(), weight)


def read_workload(queries: Any, schema: pa.Schema) -> Workload:
    """Bind all queries to ``schema``; failures are reported, and an error if all fail."""
    questions: dict[Predicate, SampleQuery] = {}
    refused: list[RefusedQuery] = []
    understood = 0
    for line, entry in _entries(queries):
        try:
            predicate, weight = _parse_entry(entry)
            same = questions.get(predicate)
            questions[predicate] = bind(predicate, schema, weight + (same.weight if same else 0.0))
            understood += 1
        except SkipstoneError as error:
            if len(refused) < _MOST_REFUSED:
                refused.append(RefusedQuery(line, str(entry)[:_MOST_TEXT], str(error)))
    if refused and not understood:
        first = refused[0]
        raise PredicateError(
            f"no query could be parsed; the first is {first.text!r}: {first.reason}",
            hint="use conditions on the lake's columns, or SELECTs from one table",
        )
    if not understood:
        hint = "pass predicates, or None to look up values of every column"
        raise UsageError("no queries to advise on", hint=hint)
    return Workload(pick(tuple(questions.values()), _MOST_QUESTIONS), understood, tuple(refused))


def pick(questions: tuple[SampleQuery, ...], most: int) -> tuple[SampleQuery, ...]:
    """Sample at most ``most`` queries, evenly over their weights, and scale their weights to the total."""
    if len(questions) <= most:
        return questions
    ends = np.cumsum([question.weight for question in questions])
    picked = np.searchsorted(ends, (np.arange(most) + 0.5) / most * ends[-1])
    numbers, counts = np.unique(picked, return_counts=True)
    weights = (counts * (ends[-1] / most)).tolist()
    return tuple(
        replace(questions[number], weight=weight)
        for number, weight in zip(numbers.tolist(), weights, strict=True)
    )


# -- sources -----------------------------------------------------------------------------------


def _entries(queries: Any) -> Iterator[tuple[int, Any]]:
    if isinstance(queries, (str, os.PathLike)):
        yield from _log_lines(Path(queries))
        return
    if isinstance(queries, (bytes, Mapping, Expr)) or not isinstance(queries, Iterable):
        raise UsageError(
            f"queries must be a list or a path, got {type(queries).__name__}",
            hint="pass a list of predicates, or the path of a query log",
        )
    yield from enumerate(queries, 1)


def _log_lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8", errors="replace") as log:
            for number, line in enumerate(log, 1):
                text = line.strip().rstrip(";").rstrip()
                if text and not text.startswith(_COMMENTS):
                    yield number, text
    except (OSError, ValueError) as error:
        raise ReadError(
            f"query log can't be read: {getattr(error, 'strerror', None) or error}",
            path=str(path),
            hint="check the path, or pass predicates as a list, such as ['a = 1']",
        ) from error


def _parse_entry(entry: Any) -> tuple[Predicate, float]:
    """Return a predicate and its weight, from a predicate, a pair of both, or a line of a log."""
    weight: Any = 1
    if isinstance(entry, tuple) and len(entry) == 2 and not isinstance(entry[1], Predicate):
        entry, weight = entry
    elif isinstance(entry, str) and entry.startswith("{"):
        entry, weight = _parse_json(entry)
    is_select = isinstance(entry, str) and _SELECT.match(entry.strip())
    predicate = _where_of_select(entry.strip()) if is_select else to_predicate(entry)
    predicate = fix_clock(predicate)
    is_number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
    if not is_number or not 0 < weight < math.inf:
        raise UsageError(f"weight must be a positive number, got {weight!r}")
    return predicate, float(weight)


def _parse_json(line: str) -> tuple[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise ParseError(f"not valid JSON: {error}") from None
    if not isinstance(entry, dict) or not isinstance(entry.get("where"), str):
        hint = 'write {"where": "a = 1", "count": 3}'
        raise ParseError('entry has no string "where"', hint=hint)
    return entry["where"], entry.get("count", 1)


def _where_of_select(text: str) -> Predicate:
    """Return the condition of a SELECT from one table, with unqualified column names."""
    import sqlglot
    from sqlglot import exp

    try:
        select = sqlglot.parse_one(text, read="spark")
    except sqlglot.errors.SqlglotError:
        raise ParseError("SELECT can't be parsed", hint="use its condition alone") from None
    tables = list(select.find_all(exp.Table))
    if not isinstance(select, exp.Select) or len(tables) != 1 or len(list(select.find_all(exp.Select))) != 1:
        hint = "use only the condition on the lake"
        raise ParseError("SELECT does not read from exactly one table", hint=hint)
    where = select.args.get("where")
    if where is None:
        return Constant(True)
    names = {tables[0].name, tables[0].alias_or_name}
    for column in list(where.find_all(exp.Column)):
        first, *rest = column.parts
        if rest and first.name in names:
            column.replace(exp.column(*reversed(rest)))
    return to_predicate(where.this.sql(dialect="spark"))
