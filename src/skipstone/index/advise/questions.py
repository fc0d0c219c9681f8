"""The questions that advice is for: predicates with weights, the lines of a query log, or sampled values."""

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

from skipstone.core.ir import compile_predicate
from skipstone.core.ir.nodes import AndNode, Node
from skipstone.errors import ParseError, PredicateError, ReadError, SkipstoneError, UsageError
from skipstone.index.advise.advice import Refused
from skipstone.predicate import Expr, Predicate
from skipstone.predicate import predicate as to_predicate
from skipstone.predicate.tree import Constant

# Of more distinct questions, this many are picked by weight.
_MOST_QUESTIONS = 400
_MOST_REFUSED = 1_000
_MOST_TEXT = 500
_COMMENTS = ("--", "#")
_SELECT = re.compile(r"(select|with)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SampleQuery:
    """A predicate bound to the lake's schema, and how often it is asked."""

    node: Node
    columns: tuple[tuple[str, ...], ...]
    """Every column it names, also those that metadata can't judge it by."""
    weight: float

    def conjuncts(self, path: tuple[str, ...]) -> tuple[Node, ...]:
        """The parts of its AND that metadata judges by a column."""
        parts = self.node.args if isinstance(self.node, AndNode) else (self.node,)
        return tuple(part for part in parts if any(ref.path == path for ref in part.refs()))


@dataclass(frozen=True, slots=True)
class Workload:
    """The questions that were understood, how many there were, and those that were not understood."""

    questions: tuple[SampleQuery, ...]
    understood: int = 0
    refused: tuple[Refused, ...] = ()


def bind(predicate: Predicate, schema: pa.Schema, weight: float) -> SampleQuery:
    """The predicate as a question to a lake of this schema."""
    return SampleQuery(compile_predicate(predicate, schema).node, predicate.columns(), weight)


def read_questions(queries: Any, schema: pa.Schema) -> Workload:
    """Bind every question to ``schema``; one that can't be is reported, all of them failing is an error."""
    questions: dict[Predicate, SampleQuery] = {}
    refused: list[Refused] = []
    understood = 0
    for place, entry in _entries(queries):
        try:
            predicate, weight = _parse_entry(entry)
            same = questions.get(predicate)
            questions[predicate] = bind(predicate, schema, weight + (same.weight if same else 0.0))
            understood += 1
        except SkipstoneError as error:
            if len(refused) < _MOST_REFUSED:
                refused.append(Refused(place, str(entry)[:_MOST_TEXT], str(error)))
    if refused and not understood:
        first = refused[0]
        raise PredicateError(
            f"no question is understood; the first, {first.text!r}: {first.reason}",
            hint="give conditions on the lake's columns, or SELECTs from one table",
        )
    if not understood:
        hint = "give predicates, or None to look up values of every column"
        raise UsageError("there is no question to advise on", hint=hint)
    return Workload(pick(tuple(questions.values()), _MOST_QUESTIONS), understood, tuple(refused))


def pick(questions: tuple[SampleQuery, ...], most: int) -> tuple[SampleQuery, ...]:
    """At most ``most`` of the questions, evenly spread over their weights, which stand for all of them."""
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


# -- where they come from ----------------------------------------------------------------------


def _entries(queries: Any) -> Iterator[tuple[int, Any]]:
    if isinstance(queries, (str, os.PathLike)):
        yield from _log_lines(Path(queries))
        return
    if isinstance(queries, (bytes, Mapping, Expr)) or not isinstance(queries, Iterable):
        raise UsageError(
            f"the questions are a {type(queries).__name__}",
            hint="give a list of predicates, or the path of a query log",
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
            f"the query log can't be read: {getattr(error, 'strerror', None) or error}",
            path=str(path),
            hint="give predicates as a list, such as ['a = 1']",
        ) from error


def _parse_entry(entry: Any) -> tuple[Predicate, float]:
    """A predicate and its weight, from a predicate, a pair of both, or a line of a log."""
    weight: Any = 1
    if isinstance(entry, tuple) and len(entry) == 2 and not isinstance(entry[1], Predicate):
        entry, weight = entry
    elif isinstance(entry, str) and entry.startswith("{"):
        entry, weight = _parse_json(entry)
    is_select = isinstance(entry, str) and _SELECT.match(entry.strip())
    predicate = _where_of_select(entry.strip()) if is_select else to_predicate(entry)
    is_number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
    if not is_number or not 0 < weight < math.inf:
        raise UsageError(f"a weight of {weight!r}", hint="give a number above zero")
    return predicate, float(weight)


def _parse_json(line: str) -> tuple[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise ParseError(f"not valid JSON: {error}") from None
    if not isinstance(entry, dict) or not isinstance(entry.get("where"), str):
        hint = 'write {"where": "a = 1", "count": 3}'
        raise ParseError("the entry has no text called where", hint=hint)
    return entry["where"], entry.get("count", 1)


def _where_of_select(text: str) -> Predicate:
    """The condition of a SELECT from one table; column names lose the table's name."""
    import sqlglot
    from sqlglot import exp

    try:
        select = sqlglot.parse_one(text, read="spark")
    except sqlglot.errors.SqlglotError:
        raise ParseError("can't read the SELECT", hint="give its condition alone") from None
    tables = list(select.find_all(exp.Table))
    if not isinstance(select, exp.Select) or len(tables) != 1 or len(list(select.find_all(exp.Select))) != 1:
        hint = "give the condition on the lake alone"
        raise ParseError("the SELECT reads from more than one table", hint=hint)
    where = select.args.get("where")
    if where is None:
        return Constant(True)
    names = {tables[0].name, tables[0].alias_or_name}
    for column in list(where.find_all(exp.Column)):
        first, *rest = column.parts
        if rest and first.name in names:
            column.replace(exp.column(*reversed(rest)))
    return to_predicate(where.this.sql(dialect="spark"))
