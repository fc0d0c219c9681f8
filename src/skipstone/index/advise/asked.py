"""The questions that advice is for: predicates with weights, or the lines of a query log."""

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

from skipstone.errors import ParseError, PredicateError, ReadError, SkipstoneError, UsageError
from skipstone.explain.advice import Refused
from skipstone.ir import compile_predicate
from skipstone.ir.nodes import ColumnRef, Node
from skipstone.predicate import Expr, Predicate
from skipstone.predicate import predicate as to_predicate
from skipstone.predicate.tree import Constant

# Of more questions that differ, so many stand for all.
_MOST = 400
_LISTED = 1_000
_TEXT = 500
_COMMENTS = ("--", "#")
_SELECT = re.compile(r"(select|with)\b", re.IGNORECASE)
_PAIR = 2


@dataclass(frozen=True, slots=True)
class Question:
    """A predicate bound to the lake's schema, and how often it is asked."""

    node: Node
    columns: tuple[tuple[str, ...], ...]
    """Every column it names, also those that metadata can't judge it by."""
    weight: float

    @property
    def refs(self) -> list[ColumnRef]:
        """The columns that metadata judges, each once."""
        return list({ref.path: ColumnRef(ref.path, ref.type) for ref in self.node.refs()}.values())


@dataclass(frozen=True, slots=True)
class Asked:
    """What was understood, and what was not."""

    questions: tuple[Question, ...]
    understood: int
    refused: tuple[Refused, ...]


def read_questions(queries: Any, schema: pa.Schema) -> Asked:
    """Bind every question to ``schema``; one that can't be is reported, all of them failing is an error."""
    found: dict[Predicate, Question] = {}
    refused: list[Refused] = []
    understood = 0
    for place, given in _entries(queries):
        try:
            predicate, weight = _weighed(given)
            known = found.get(predicate)
            found[predicate] = question(predicate, schema, weight + (known.weight if known else 0.0))
            understood += 1
        except SkipstoneError as error:
            if len(refused) < _LISTED:
                refused.append(Refused(place, _shown(given), str(error)))
    if not understood:
        if not refused:
            raise UsageError(
                "there is no question to advise on", hint="give predicates, or None to ask without them"
            )
        first = refused[0]
        raise PredicateError(
            f"no question is understood; the first, {first.text!r}: {first.reason}",
            hint="give conditions on the lake's columns, or SELECTs from one table",
        )
    return Asked(thinned(tuple(found.values()), _MOST), understood, tuple(refused))


def thinned(questions: tuple[Question, ...], most: int) -> tuple[Question, ...]:
    """At most so many of the questions, picked by their weight, that stand for all of them."""
    if len(questions) <= most:
        return questions
    edges = np.cumsum([asked.weight for asked in questions])
    picked = np.searchsorted(edges, (np.arange(most) + 0.5) / most * edges[-1])
    places, counts = np.unique(picked, return_counts=True)
    share = float(edges[-1]) / most
    pairs = zip(places.tolist(), counts.tolist(), strict=True)
    return tuple(replace(questions[place], weight=count * share) for place, count in pairs)


def question(predicate: Predicate, schema: pa.Schema, weight: float) -> Question:
    """The predicate as a question to a lake of this schema."""
    compiled = compile_predicate(predicate, schema)
    return Question(compiled.node, predicate.columns(), weight)


def _shown(given: Any) -> str:
    return (given if isinstance(given, str) else str(given))[:_TEXT]


# -- where they come from ----------------------------------------------------------------------


def _entries(queries: Any) -> Iterator[tuple[int, Any]]:
    if isinstance(queries, (str, os.PathLike)):
        yield from _lines(Path(queries))
        return
    if isinstance(queries, (bytes, Mapping, Expr)) or not isinstance(queries, Iterable):
        raise UsageError(
            f"the questions are a {type(queries).__name__}",
            hint="give a list of predicates, or the path of a query log",
        )
    yield from enumerate(queries, 1)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
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


def _weighed(given: Any) -> tuple[Predicate, float]:
    if isinstance(given, tuple) and len(given) == _PAIR and not isinstance(given[1], Predicate):
        predicate, weight = _predicate(given[0]), given[1]
    elif isinstance(given, str) and given.startswith("{"):
        predicate, weight = _json_line(given)
    else:
        predicate, weight = _predicate(given), 1
    number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
    if not number or not 0 < weight < math.inf:
        raise UsageError(f"a weight of {weight!r}", hint="give a number above zero")
    return predicate, float(weight)


def _json_line(line: str) -> tuple[Predicate, Any]:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise ParseError(f"no JSON: {error}") from None
    if not isinstance(entry, dict) or not isinstance(entry.get("where"), str):
        raise ParseError("it has no text called where", hint='write {"where": "a = 1", "count": 3}')
    return _predicate(entry["where"]), entry.get("count", 1)


def _predicate(given: Any) -> Predicate:
    if isinstance(given, str) and _SELECT.match(given.strip()):
        return _of_select(given.strip())
    return to_predicate(given)


def _of_select(text: str) -> Predicate:
    """The condition of a SELECT from one table; names lose the table they are qualified with."""
    import sqlglot
    from sqlglot import exp

    try:
        select = sqlglot.parse_one(text, read="spark")
    except sqlglot.errors.SqlglotError:
        raise ParseError("can't read the SELECT", hint="give its condition alone") from None
    tables = list(select.find_all(exp.Table))
    if not isinstance(select, exp.Select) or len(tables) != 1 or len(list(select.find_all(exp.Select))) != 1:
        raise ParseError("it reads from more than one table", hint="give the condition on the lake alone")
    where = select.args.get("where")
    if where is None:
        return Constant(True)
    names = {tables[0].name, tables[0].alias_or_name}
    for column in list(where.find_all(exp.Column)):
        first, *rest = column.parts
        if rest and first.name in names:
            column.replace(exp.column(*reversed(rest)))
    return to_predicate(where.this.sql(dialect="spark"))
