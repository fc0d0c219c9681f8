"""Random sets of ids and of places: as an aggregation takes them, and as DuckDB is told of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap, BitMap64, FrozenBitMap

import skipstone as sk
from tests.property._aggregate_oracle import Answers, Path

BITS_32 = 2**32
WIDEST = 4_000
"""The longest run of ids that is made."""
PLAIN = ("run", "run", "runs", "dense", "dense")
STYLES = (*("all", "sparse", "most", "run", "runs", "odd", "dense") * 3, "empty", "elsewhere")


@dataclass
class Chosen:
    """What an aggregation is given, and the same as a condition about tables of numbers."""

    given: dict[str, Any] = field(default_factory=dict)
    condition: str = "true"
    sets: dict[str, np.ndarray] = field(default_factory=dict)
    words: str = "everything"


class Sets:
    """Makes sets for one table."""

    def __init__(
        self, rng: random.Random, answers: Answers, files: Sequence[str], ids: Sequence[Path]
    ) -> None:
        self.rng = rng
        self.answers = answers
        self.files = files
        self.ids = ids
        self.made: dict[str, np.ndarray] = {}
        self.styles = STYLES

    def choose(self, *, plain: bool = False) -> Chosen:
        """``within``, ``without``, both, or neither; ``plain`` sets leave most units whole."""
        rng = self.rng
        self.styles = PLAIN if plain else STYLES
        style = rng.randrange(10)
        if style <= (5 if plain else 2):
            return Chosen()
        if plain or style <= 5:
            chosen = self._plain(rng.choice(self.ids))
        elif style == 6:
            chosen = self._places()
        else:
            chosen = self._expressed()
        chosen.sets = self.made
        return chosen

    # -- forms of the call -------------------------------------------------------------------

    def _plain(self, path: Path) -> Chosen:
        """Bare sets beside ``id_column``."""
        rng = self.rng
        parts: dict[str, list[tuple[Any, str, str]]] = {"within": [], "without": []}
        for name in rng.choice([["within"], ["within"], ["without"], ["within", "without"]]):
            parts[name] = [self._ids(path) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
        given: dict[str, Any] = {"id_column": ".".join(path)}
        conditions = []
        for name, some in parts.items():
            if some:
                one = len(some) == 1 and (rng.random() < 0.8 or not _is_set(some[0][0]))
                forms = [form if one or _is_set(form) else _bitmap(form) for form, _, _ in some]
                given[name] = forms[0] if one else rng.choice([list, tuple])(forms)
                all_of, any_of = (joint.join(c for _, c, _ in some) for joint in (" AND ", " OR "))
                conditions.append(f"({all_of})" if name == "within" else f"NOT ({any_of})")
        words = "; ".join(f"{n} {[w for _, _, w in some]} of {path}" for n, some in parts.items() if some)
        return Chosen(given, " AND ".join(conditions), words=words)

    def _places(self) -> Chosen:
        """Positions, in the whole lake or by file."""
        rng = self.rng
        name = rng.choice(["within", "within", "without"])
        form, condition, words = self._whole_lake() if rng.random() < 0.5 else self._by_file()
        condition = condition if name == "within" else f"NOT ({condition})"
        return Chosen({name: form}, condition, words=f"{name} {words}")

    def _expressed(self) -> Chosen:
        """Expressions of members."""
        given, conditions, words = {}, [], []
        for name in self.rng.choice([["within"], ["within"], ["without"], ["within", "without"]]):
            made, condition, text = self._tree(self.rng.choice([0, 1, 1, 2, 3]))
            given[name] = made
            conditions.append(f"({condition})" if name == "within" else f"NOT ({condition})")
            words.append(f"{name} {text}")
        return Chosen(given, " AND ".join(conditions), words="; ".join(words))

    def _tree(self, depth: int) -> tuple[Any, str, str]:
        rng = self.rng
        if depth == 0 or rng.random() < 0.15:
            return self._leaf()
        if rng.random() < 0.3:
            made, condition, words = self._tree(depth - 1)
            return ~made, f"(NOT {condition})", f"~({words})"
        (a, x, left), (b, y, right) = self._tree(depth - 1), self._tree(rng.randrange(depth))
        style = rng.randrange(7)
        if style <= 2:
            return a & b, f"({x} AND {y})", f"({left} & {right})"
        if style <= 5:
            return a | b, f"({x} OR {y})", f"({left} | {right})"
        return a - b, f"({x} AND NOT {y})", f"({left} - {right})"

    def _leaf(self) -> tuple[Any, str, str]:
        rng = self.rng
        if rng.random() < 0.25:
            form, condition, words = self._whole_lake() if rng.random() < 0.5 else self._by_file()
            return sk.members(form), condition, words
        path = rng.choice(self.ids)
        form, condition, words = self._ids(path)
        return sk.members(form, ".".join(path)), condition, f"{words} of {'.'.join(path)}"

    # -- sets --------------------------------------------------------------------------------

    def _ids(self, path: Path) -> tuple[Any, str, str]:
        there = sorted({v for v in self.answers.values(path) if v is not None and v >= 0})
        style, numbers = self._numbers(there, 2**64 - 1)
        form, kind = self._form(numbers)
        column = self.answers.name(path)
        held = f"{column}::HUGEINT IN (SELECT n::HUGEINT FROM {self._named(numbers)})"
        return form, f"({column} IS NOT NULL AND {held})", f"{style} {len(numbers)} ids as {kind}"

    def _numbers(self, there: list[int], most: int) -> tuple[str, np.ndarray]:
        """Members, among the values that there are or beside them."""
        rng = self.rng
        style = rng.choice(self.styles if there else ["empty", "elsewhere"])
        if style == "empty":
            chosen: list[int] = []
        elif style == "all":
            chosen = there
        elif style == "sparse":
            chosen = rng.sample(there, max(1, len(there) // rng.choice([3, 10, 50])))
        elif style == "most":
            chosen = [v for v in there if rng.random() < 0.95]
        elif style in ("run", "runs"):
            chosen = []
            for _ in range(1 if style == "run" else rng.randrange(2, 6)):
                start = rng.choice(there) - rng.choice([0, 0, 1, 10])
                chosen += range(start, start + rng.choice([1, 10, 60, 200, WIDEST]))
        elif style == "odd":
            chosen = there[rng.randrange(2) :: 2]
        elif style == "dense":  # every number between the least and the greatest, or as many as can be
            chosen = [*range(there[0], min(there[-1], there[0] + WIDEST) + 1), *there[-5:]]
        else:
            chosen = [
                v for v in (rng.randrange(2 ** rng.randrange(1, 64)) for _ in range(20)) if v not in there
            ]
        return style, np.array(sorted({v for v in chosen if 0 <= v <= most}), dtype=np.uint64)

    def _form(self, numbers: np.ndarray) -> tuple[Any, str]:
        rng = self.rng
        top = int(numbers[-1]) if len(numbers) else 0
        kinds = ["BitMap64", "uint64 array", "list"]
        if top < BITS_32:
            kinds += ["BitMap", "BitMap", "BitMap", "FrozenBitMap", "uint32 array"]
        if top < 2**62:
            kinds += ["RowSet", "RowSet", "int64 array", "Arrow array"]
        kind = rng.choice(kinds)
        repeated = np.concatenate([numbers, numbers[: rng.choice([0, 0, 3])]])
        shuffled = repeated[np.random.default_rng(rng.randrange(2**32)).permutation(len(repeated))]
        match kind:
            case "BitMap":
                return BitMap(numbers.tolist()), kind
            case "FrozenBitMap":
                return FrozenBitMap(numbers.tolist()), kind
            case "BitMap64":
                return BitMap64(numbers.tolist()), kind
            case "RowSet":
                return sk.RowSet.from_positions(top + rng.choice([1, 1, 100]), numbers.astype(np.int64)), kind
            case "list":
                return shuffled.tolist(), kind
            case "Arrow array":
                return pa.array(shuffled.astype(np.int64)), kind
        return shuffled.astype(kind.split()[0]), kind

    def _named(self, numbers: np.ndarray) -> str:
        name = f"set_{len(self.made)}"
        self.made[name] = numbers
        return name

    # -- places ------------------------------------------------------------------------------

    def _whole_lake(self) -> tuple[Any, str, str]:
        total = self.answers.table.num_rows
        style, numbers = self._numbers(list(range(total)), max(total - 1, 0))
        numbers = numbers[: total and len(numbers)]
        kinds = [BitMap(numbers.tolist()), BitMap64(numbers.tolist()), numbers.astype(np.int64)]
        form = self.rng.choice([*kinds, sk.RowSet.from_positions(total, numbers.astype(np.int64))])
        condition = f"(row_ IN (SELECT n::BIGINT FROM {self._named(numbers)}))"
        return form, condition, f"{style} {len(numbers)} places as {type(form).__name__}"

    def _by_file(self) -> tuple[Any, str, str]:
        rng, starts = self.rng, self.answers.starts
        given, rows, words = {}, [], []
        for number, path in enumerate(self.files):
            total = starts[number + 1] - starts[number]
            if rng.random() < 0.3 or not total:
                continue  # no row of a file that isn't named
            style, numbers = self._numbers(list(range(total)), total - 1)
            held = numbers.astype(np.int64)
            given[path] = rng.choice([BitMap(held.tolist()), sk.RowSet.from_positions(total, held)])
            rows.append(held + starts[number])
            words.append(f"{path}: {style} {len(held)} as {type(given[path]).__name__}")
        every = np.concatenate([np.array([], dtype=np.int64), *rows]).astype(np.uint64)
        return given, f"(row_ IN (SELECT n::BIGINT FROM {self._named(every)}))", f"places {words}"


def _is_set(form: Any) -> bool:
    return isinstance(form, BitMap | BitMap64 | FrozenBitMap | sk.RowSet)


def _bitmap(form: Any) -> BitMap64:
    return BitMap64(np.asarray(form, dtype=np.uint64).tolist())
