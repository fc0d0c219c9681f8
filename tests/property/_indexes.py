"""Random indexes of random lakes, and what happens to a lake after its index was built."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import LocalStore

import skipstone as sk
import skipstone.index.build as build_module
import skipstone.index.coverage as coverage_module
import skipstone.index.draft as draft_module
import skipstone.index.filters as filters_module
from skipstone.core.domain.keys import is_ordered, storage_type
from tests.property._lakes import Lake, LakeFile
from tests.property._layouts import Table
from tests.property._oracle import read
from tests.property._predicates import is_drawn
from tests.property._scans import ScanCase

# sk.prune is a function, which hides the package of its name.
survey_module = importlib.import_module("skipstone.prune.survey")

# -- small lakes take the ways of large ones ---------------------------------------------------


@contextlib.contextmanager
def as_if_large(rng: random.Random) -> Iterator[str]:
    """In some lakes blocks, searches and merges come with a handful of files."""
    with pytest.MonkeyPatch.context() as patch:
        words = []
        if rng.random() < 0.7:
            patch.setattr(coverage_module, "_SMALL", 0)
            words.append("sieved")
            if rng.random() < 0.8:
                patch.setattr(coverage_module, "_FEW", 0)
                patch.setattr(coverage_module, "_SHARE", rng.choice([1, 1, 2]))
                block = rng.choice([1, 1, 2, 3])
                patch.setattr(draft_module, "BLOCK", block)
                words.append(f"blocks of {block}")
        if rng.random() < 0.5:
            many = rng.choice([1, 1, 2])
            patch.setattr(build_module, "MANY_SEGMENTS", many)
            words.append(f"more than {many} merged")
        if rng.random() < 0.5:
            patch.setattr(build_module, "_LEAST_GROUPS", 1)
            words.append("one group")
        if rng.random() < 0.4:
            patch.setattr(survey_module, "_MAX_PAGES", 0)
            patch.setattr(filters_module, "_FEW_GROUPS", 0)
            words.append("row groups before pages")
        yield ", ".join(words)


# -- what to index -----------------------------------------------------------------------------


def leaf_names(schema: pa.Schema, without: set[str]) -> list[str]:
    """Columns that can be indexed, fields of structs by their dotted names."""
    found = []
    for column in schema:
        if column.name in without:
            continue
        plain = storage_type(column.type)
        if pa.types.is_struct(plain):
            found += [f"{column.name}.{part.name}" for part in plain if is_ordered(part.type)]
        elif is_ordered(column.type):
            found.append(column.name)
    return found


def _some(rng: random.Random, names: list[str]) -> list[str]:
    return rng.sample(names, rng.randrange(1, len(names) + 1)) if names else []


def random_choice(rng: random.Random, opened: Any) -> dict[str, Any]:
    """Arguments of a build."""
    names = leaf_names(opened.query_schema, {*opened.partition_names})
    numbers = [n for n in names if "." not in n and _is_number(opened.query_schema.field(n).type)]
    style = rng.randrange(4)
    choice: dict[str, Any] = {}
    if style == 1:
        choice["columns"] = _some(rng, names)
    elif style == 2:
        choice |= {"columns": names, "values": rng.choice([True, False, None])}
    elif style == 3:
        choice["values"] = True
    choice["blooms"] = rng.choice([None, None, False, True, _some(rng, names), names])
    if rng.random() < 0.25:
        choice["pages"] = False
    if rng.random() < 0.25:
        choice["sums"] = rng.choice([True, _some(rng, numbers)]) if numbers else False
    if rng.random() < 0.2:
        choice["sketches"] = rng.choice([True, _some(rng, names)])
    return choice


def _is_number(type: pa.DataType) -> bool:
    return pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type)


# -- where, and what becomes of it -------------------------------------------------------------


@dataclass
class Home:
    """How a lake and its index are opened, always the same way."""

    lake: Lake
    style: str
    index_root: Any

    @classmethod
    def random(cls, rng: random.Random, lake: Lake) -> Home:
        style = rng.choice(["folder", "folder", "folder", "glob", "store"])
        where = rng.choice(["inside", "inside", "hidden", "outside"])
        near = {"inside": None, "hidden": lake.root / "_other" / "idx"}
        root: Any = near.get(where, lake.root.parent / f"{lake.root.name}-index")
        if style == "store" and root is not None:
            root = root.relative_to(lake.root.parent).as_posix()
        return cls(lake, style, root)

    def open(self, *, whole: bool = False) -> Any:
        """The lake; ``whole`` by its directory, as who builds an index in it must open it."""
        root, schema = self.lake.root, self.lake.schema if self.lake.explicit else None
        if self.style == "store":
            store = LocalStore(root.parent)
            return sk.open(root.name, store=store, schema=schema, index_root=self.index_root)
        path = f"{root}/**/*.parquet" if self.style == "glob" and not whole else root
        return sk.open(path, schema=schema, index_root=self.index_root)

    @property
    def words(self) -> str:
        return f"opened by {self.style}, index {self.index_root or 'inside'}"


@dataclass
class History:
    """A lake that is indexed, changed, refreshed, …; every step is told in words."""

    rng: random.Random
    home: Home
    count: Counter[str]
    words: list[str] = field(default_factory=list)
    away: list[LakeFile] = field(default_factory=list)
    opened: Any = None

    @property
    def lake(self) -> Lake:
        return self.home.lake

    def run(self) -> Any:
        """Build, change, build, … and open what has become of it."""
        rng = self.rng
        if rng.random() < 0.5:
            for _ in range(rng.randrange(len(self.lake.files))):
                self._hide()
        self.opened = self.home.open(whole=self.home.index_root is None)
        self._build()
        steps = [self._appear, self._replace, self._touch, self._delete, self._rewrite]
        steps += [self._refresh, self._refresh, self._build]
        for _ in range(rng.choice([0, 0, 1, 2, 3, 5])):
            rng.choice(steps)()
        while self.away:
            self._appear()
        if rng.random() < 0.4:
            self._refresh()
        self.lake.files.sort(key=lambda f: f.path.encode())
        return self._enter()

    def _enter(self) -> Any:
        way = self.rng.randrange(4)
        if way == 0:
            self.opened.refresh()
            self.words.append("the same lake, listed anew")
            return self.opened
        opened = self.home.open()
        if way == 1:
            self.words.append("pickled")
            return pickle.loads(pickle.dumps(opened))
        return opened

    # -- steps -------------------------------------------------------------------------------

    def _build(self) -> None:
        self.opened.refresh()
        choice = random_choice(self.rng, self.opened)
        if self.rng.random() < 0.15:
            choice["rebuild"] = True
        self.words.append(f"build {choice}")
        self._told(self.opened.index.build(engine="local", threads=self.rng.choice([1, 2]), **choice))

    def _refresh(self) -> None:
        self.words.append("refresh")
        self._told(self.opened.index.refresh(engine="local"))

    def _told(self, report: Any) -> None:
        self.words.append(f"-> {report}")
        listed = len(self.opened.entries)
        assert not report.skipped, report
        assert report.indexed + report.already_indexed + report.adopted == listed, report
        for name in ("already_indexed", "adopted", "dropped", "merged"):
            self.count[f"builds with files {name}"] += bool(getattr(report, name))

    def _hide(self) -> None:
        file = self.rng.choice(self.lake.files)
        self.lake.files.remove(file)
        self.away.append(file)
        self._path(file).rename(self._aside(file))

    def _appear(self) -> None:
        if self.away:
            file = self.away.pop()
            self.words.append(f"{file.path} appears")
            self._aside(file).rename(self._path(file))
            self.lake.files.append(file)

    def _aside(self, file: LakeFile) -> Path:
        return self.lake.root.parent / f"{self.lake.root.name}-{file.path.replace('/', '-')}"

    def _path(self, file: LakeFile) -> Path:
        return self.lake.root / file.path

    def _delete(self) -> None:
        if len(self.lake.files) > 1:
            file = self.rng.choice(self.lake.files)
            self.words.append(f"{file.path} deleted")
            self.lake.files.remove(file)
            self._path(file).unlink()

    def _touch(self) -> None:
        """Another time, the same bytes."""
        file = self.rng.choice(self.lake.files)
        path = self._path(file)
        self.words.append(f"{file.path} touched")
        _later(path, path.stat().st_mtime_ns)

    def _replace(self) -> None:
        """Other rows in the place of the old ones: every second, or each with the next one's values."""
        self._written("replaced", lambda table: table.take(pa.array(range(0, table.num_rows, 2), pa.int64())))

    def _rewrite(self) -> None:
        """The same rows in reverse, in a file of the same size if it can be had."""
        self._written("as plain", lambda table: table, plain=True)
        if self.rng.random() < 0.7:
            self._refresh()
        order = lambda table: table.take(pa.array(range(table.num_rows - 1, -1, -1), pa.int64()))  # noqa: E731
        self._written("reversed", order, plain=True)

    def _written(self, what: str, change: Any, *, plain: bool = False) -> None:
        file = self.rng.choice(self.lake.files) if what != "reversed" else self._last
        self._last = file
        path = self._path(file)
        before = path.stat()
        try:
            table = change(read(path))
        except pa.ArrowNotImplementedError:  # views can't be taken from
            return
        options: dict[str, Any] = {"row_group_size": self.rng.choice([20, 64])} if not plain else {}
        if plain:
            options = {"row_group_size": 30, "compression": "none", "use_dictionary": False}
        other = path.with_name(f".{path.name}.new")
        pq.write_table(table, other, **options)
        other.replace(path)
        _later(path, before.st_mtime_ns)
        self.words.append(f"{file.path} {what}")
        if what == "reversed":
            self.count["rewrites of one size"] += path.stat().st_size == before.st_size


def _later(path: Path, before: int) -> None:
    os.utime(path, ns=(before, max(before + 5_000_000, path.stat().st_mtime_ns)))


# -- asking ------------------------------------------------------------------------------------


@dataclass
class IndexCase(ScanCase):
    """A scan with or without the index."""

    def scan(self, rng: random.Random, way: str, **more: Any) -> tuple[Any, dict[str, Any]]:
        _scan, switches = super().scan(rng, way, **more)
        switches["index"] = rng.random() < 0.85
        self.words = f"{way} {more} {switches}"
        return self.world.opened.scan(self.predicate, **more, **switches), switches


def drawn(made: Table) -> Any:
    """Pools and how predicates are drawn of them."""
    return made, is_drawn
