"""Random tables, each from one seed: chains of appends, deletes, changes of schema and spec, and the rest."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.iceberg._maker import Maker
from tests.iceberg._metrics import MODES
from tests.iceberg._parquet import WRITERS
from tests.iceberg._table import Columns, partition_key
from tests.iceberg._types import DAY_MICROS, Field, List, Map, Struct, Type, all_fields, arrow_type
from tests.property._lakes import ROW_ID
from tests.property._layouts import FAMILIES, Family, add_nulls, arrange
from tests.property._layouts import Table as Pools

_BY_NAME = {f.name: f for f in FAMILIES}
_KINDS = {
    "boolean": "flag",
    "int": "i32",
    "long": "i64",
    "float": "f32",
    "double": "f64",
    "date": "day",
    "time": "clock_us",
    "timestamp": "ts_us",
    "timestamptz": "ts_us_tz",
    "timestamp_ns": "ts_ns",
    "timestamptz_ns": "ts_ns",
    "string": "text",
    "binary": "blob",
    "fixed[4]": "fixed",
    "decimal(4, 1)": "dec4",
    "decimal(9, 2)": "dec9",
    "decimal(18, 6)": "dec18",
    "decimal(38, 10)": "dec38",
}
NANO_TYPES = ("timestamp_ns", "timestamptz_ns")
WIDER = {
    "int": ["long"],
    "float": ["double"],
    "decimal(4, 1)": ["decimal(6, 1)", "decimal(20, 1)"],
    "decimal(9, 2)": ["decimal(18, 2)", "decimal(38, 2)"],
    "decimal(18, 6)": ["decimal(38, 6)"],
}
_NAMES = ("a", "b", "c", "d.ot", "sp ace", "ünï", "A", "select", "x%2F")


def family(type: str) -> Family:
    """How to make values of a type."""
    if type == "uuid":  # compared with bytes
        return Family("blob", pa.binary(), lambda rng, size: [rng.randbytes(16) for _ in range(size)])
    if type in _KINDS:
        found = _BY_NAME[_KINDS[type]]
        return Family(found.name, arrow_type(type), found.pool)
    kinds = [k for k in _KINDS if k.startswith("decimal") and k.endswith(type.rpartition(",")[2])]
    return Family("decimal", arrow_type(type), _BY_NAME[_KINDS[kinds[0]]].pool)


def transforms(type: Type, rng: random.Random) -> list[str]:
    """The transforms that a source of this type may have."""
    if not isinstance(type, str):
        return []
    found = ["identity", "identity"]
    if type not in ("boolean", "float", "double"):
        found += [f"bucket[{rng.choice([2, 3, 7])}]"]
    if type in ("int", "long", "string", "binary") or type.startswith("decimal"):
        found += [f"truncate[{rng.choice([1, 2, 5, 10])}]"] * 2
    if type == "date":
        found += ["day", "month", "year"]
    if type.startswith("timestamp"):
        found += ["day", "month", "year", "hour", "day"]
    return found


@dataclass(frozen=True)
class Chain:
    """A made table, and from what pools its columns were made."""

    maker: Maker
    pools: dict[int, list[Any]]
    words: list[str]

    def made(self, schema: int) -> Pools:
        """Pools for predicates under one of the schemas."""
        pools: dict[tuple[str, ...], tuple[Family, list[Any]]] = {}
        nested = []
        for path, f in all_fields(self.maker.schemas[schema]):
            if isinstance(f.type, str):
                pools[path] = family(f.type), self._pool(f)
            else:
                nested.append(path)
        return Pools(pa.table({}), pools, nested)

    def _pool(self, field: Field) -> list[Any]:
        if field.id not in self.pools:
            return [0, 5, 33, 70, 1_003]
        pool = self.pools[field.id]
        if str(field.type).startswith("timestamp") and all(abs(v) < 10**6 for v in pool):
            return [v * DAY_MICROS * (1000 if field.type in NANO_TYPES else 1) for v in pool]
        return pool


class Chainer:
    """Makes one chain."""

    def __init__(self, seed: str, root: Path, *, readable: bool = False, metrics: str | None = None) -> None:
        self.rng = random.Random(f"chain:{seed}")
        self.modes = MODES if metrics is None else (metrics,)
        self.readable = readable
        """Whether pyiceberg must be able to read it: no equality deletes, no lists of structs (NULL becomes
        an empty one), no floats as partitions (it rounds them, and loses deletes of a NaN partition)."""
        rng = self.rng
        version = rng.choice([1, 2, 2, 2]) if readable else rng.choice([1, 2, 2, 3, 3])
        self.rows_made = 0
        self.words: list[str] = []
        self.pools: dict[int, list[Any]] = {}
        self.maker = Maker(
            root,
            self._columns(version),
            format_version=version,
            seed=seed,
            scheme=rng.choice(["", "file://"]),
            name_mapping=rng.random() < 0.3,
            required=[ROW_ID] if not readable and rng.random() < 0.5 else [],
            odd=not readable and rng.random() < 0.5,
        )
        self.tags = 0
        self._fill_pools()

    def run(self, between: Callable[[Maker, list[str]], None] | None = None) -> Chain:
        """Take some steps; something else may happen in between."""
        rng, maker = self.rng, self.maker
        maker.evolve_spec(self._spec())
        self._say("spec", maker.specs[maker.default_spec].to_json())
        self.append()
        steps: list[tuple[Callable[[], None], float]] = [
            (self.append, 4),
            (self.evolve_schema, 2.5),
            (self.evolve_spec, 2),
            (self.delete_positions, 2),
            (self.delete_vector, 2.5),
            (self.delete_equal, 2.5),
            (self.row_delta, 1),
            (self.remove, 0.7),
            (self.rewrite_manifests, 0.8),
            (self.name, 0.8),
            (self.empty, 0.3),
            (self.upgrade, 0.3),
            (self.rollback, 0.2),
            (self.expire, 0.2),
        ]
        for _ in range(rng.randrange(2, 11)):
            if between is not None:
                between(maker, self.words)
            (step,) = rng.choices([s for s, _ in steps], [w for _, w in steps])
            step()
        return Chain(maker, self.pools, self.words)

    def _say(self, *what: Any) -> None:
        self.words.append(" ".join(map(str, what)))

    # -- columns -------------------------------------------------------------------------------

    def _columns(self, version: int) -> list[tuple[str, Any]]:
        rng = self.rng
        names = rng.sample(_NAMES, len(_NAMES)) if rng.random() < 0.4 else list("abcdefgh")
        columns: list[tuple[str, Any]] = [
            (name, self._random_type(version)) for name in names[: rng.randrange(2, 6)]
        ]
        if rng.random() < 0.4:
            inner = {f"f{n}": self._random_type(version) for n in range(rng.randrange(1, 4))}
            columns.append(("st", inner))
        if rng.random() < 0.25:
            kinds: list[Any] = [["int"], [{"n": "long", "w": "string"}]]
            columns.append(("items", kinds[0] if self.readable else rng.choice(kinds)))
        if rng.random() < 0.15:
            columns.append(("tags", ("string", "long")))
        if rng.random() < 0.15:
            columns.append(("u", "uuid"))
        rng.shuffle(columns)
        columns.insert(rng.randrange(len(columns) + 1), (ROW_ID, "long"))
        return columns

    def _random_type(self, version: int) -> str:
        kinds = [k for k in _KINDS if version > 2 or k not in NANO_TYPES]
        favourites = ["int", "long", "string", "string", "double", "date", "timestamp", "decimal(9, 2)"]
        return self.rng.choice([*kinds, *favourites])

    def _fill_pools(self) -> None:
        for f in _leaves(self.maker.schema):
            if f.id not in self.pools and f.name != ROW_ID and isinstance(f.type, str):
                self.pools[f.id] = self._pool(f.type)

    def _pool(self, type: str) -> list[Any]:
        rng = self.rng
        pool = family(type).pool(rng, rng.choice([1, 3, 5, 8, 20]))
        return pool if len(pool) < 12 else rng.sample(pool, 12)

    def _values(self, type: Type, id: int, rows: int) -> list[Any]:
        rng = self.rng
        match type:
            case Struct(fields):
                parts = {f.id: self._values(f.type, f.id, rows) for f in fields}
                made = [{id: values[n] for id, values in parts.items()} for n in range(rows)]
                return add_nulls(rng, made) if rows else []
            case List(inner, element):
                flat = self._values(element, inner, rows * 3)
                return add_nulls(rng, [flat[n * 3 : n * 3 + rng.randrange(4)] for n in range(rows)])
            case Map(_, _, inner, value):
                flat = self._values(value, inner, rows * 3)
                return add_nulls(
                    rng, [[(f"k{k}", flat[n * 3 + k]) for k in range(rng.randrange(4))] for n in range(rows)]
                )
        pool = self.pools.setdefault(id, self._pool(type))
        return arrange(rng, self._grown(type, pool), rows)

    def _grown(self, type: str, pool: list[Any]) -> list[Any]:
        """The pool as a wider type has it."""
        if type.startswith("timestamp") and all(abs(v) < 10**6 for v in pool):
            return [v * DAY_MICROS * (1000 if type in NANO_TYPES else 1) for v in pool]
        return pool

    def rows(self, count: int, fields: Sequence[Field]) -> Columns:
        """Some new rows."""
        made: Columns = {}
        for f in fields:
            if f.name == ROW_ID:
                made[f.id] = [*range(self.rows_made, self.rows_made + count)]
            else:
                made[f.id] = self._values(f.type, f.id, count)
        self.rows_made += count
        return made

    # -- steps ---------------------------------------------------------------------------------

    def append(self) -> None:
        maker = self.maker
        options = self._file_options()
        columns = self.rows(self.rng.choice([1, 5, 20, 30, 40]), maker.schemas[options["schema"]])
        commit: dict[str, Any] = {}
        if self.rng.random() < 0.08 and maker.version > 1:
            commit["sequence"] = self.rng.randrange(maker.sequence + 1)
        if len(self._branches()) > 1 and self.rng.random() < 0.5:
            commit["branch"] = self.rng.choice(self._branches())
        self._say("append", options, commit)
        maker.append(columns, **options, **commit)

    def _file_options(self) -> dict[str, Any]:
        rng, maker = self.rng, self.maker
        schema = maker.current_schema
        if rng.random() < 0.15 and not self.readable:
            schema = rng.randrange(len(maker.schemas))
        known = {f.id for _, f in all_fields(maker.schemas[schema])}
        specs = [s.id for s in maker.specs.values() if {f.source for f in s.fields if not f.is_void} <= known]
        default = maker.default_spec if maker.default_spec in specs else None
        spec = rng.choice(specs) if default is None or rng.random() < 0.1 else default
        return {
            "schema": schema,
            "spec": spec,
            "writer": rng.choice(
                ["pyarrow", "pyarrow", "duckdb"] if self.readable else [*WRITERS, "pyarrow"]
            ),
            "metrics": rng.choice(self.modes),
            "files": rng.choice([1, 1, 1, 2, 3]),
            "leave_out": rng.random() < 0.15,
            "ids": not maker.name_mapping or rng.random() < 0.6,
            "old_times": not self.readable and rng.random() < 0.1,
        }

    def empty(self) -> None:
        self._say("empty file")
        self.maker.commit("append", [self.maker.empty_file()])

    def evolve_schema(self) -> None:
        rng, maker = self.rng, self.maker
        kind = rng.choice(["add", "add", "drop", "rename", "rename", "order", "widen", "swap"])
        tops = [f for f in maker.schema if f.name != ROW_ID]
        paths = {".".join(p): f for p, f in all_fields(maker.schema) if f.name != ROW_ID and "." not in p[0]}
        plain = {p: f for p, f in paths.items() if p.count(".") == 0 or not p.startswith(("items", "tags"))}
        used = {f.source for s in maker.specs.values() for f in s.fields}
        if kind == "add":
            return self._add(plain)
        if kind == "drop":
            current = {f.source for f in maker.specs[maker.default_spec].fields if not f.is_void}
            free = [p for p, f in plain.items() if not {f.id, *_below(f)} & current and self._droppable(p)]
            if free:
                path = rng.choice(free)
                self._say("drop", path, plain[path].id)
                maker.evolve_schema(drop=[path])
        elif kind == "rename" and plain:
            path = rng.choice([*plain])
            new = f"{path.rpartition('.')[2]}_{len(maker.schemas)}"
            self._say("rename", path, new)
            maker.evolve_schema(rename={path: new})
        elif kind == "swap" and not maker.name_mapping:
            names = [f.name for f in tops if isinstance(f.type, str) and "." not in f.name]
            if len(names) > 1:
                one, two = rng.sample(names, 2)
                self._say("swap", one, two)
                maker.evolve_schema(rename={one: two, two: one})
        elif kind == "order":
            names = [f.name for f in maker.schema]
            rng.shuffle(names)
            self._say("order", names)
            maker.evolve_schema(order=names)
        elif kind == "widen":
            wide: dict[str, list[str]] = {}
            for p, f in plain.items():
                wide[p] = WIDER.get(str(f.type), [])
                if maker.version > 2 and f.type == "date" and f.id not in used:
                    wide[p] = ["timestamp", "timestamp_ns"]
            able = [p for p, types in wide.items() if types]
            if able:
                path = rng.choice(able)
                new = rng.choice(wide[path])
                self._say("widen", path, new)
                maker.evolve_schema(widen={path: new})
        return None

    def _droppable(self, path: str) -> bool:
        """A struct keeps a field."""
        parent, _, _ = path.rpartition(".")
        if not parent:
            return len(self.maker.schema) > 2
        type = self.maker.field(parent).type
        return isinstance(type, Struct) and len(type.fields) > 1

    def _add(self, plain: dict[str, Field]) -> None:
        rng, maker = self.rng, self.maker
        type = self._random_type(maker.version)
        gone = {f.name for s in maker.schemas for f in s} - {f.name for f in maker.schema}
        reuse = gone and not maker.name_mapping and rng.random() < 0.5
        name = rng.choice(sorted(gone)) if reuse else f"n{len(maker.schemas)}"
        structs = [p for p, f in plain.items() if isinstance(f.type, Struct)]
        if structs and rng.random() < 0.4:
            name = f"{rng.choice(structs)}.n{len(maker.schemas)}"
        pool = self._pool(type)
        default = rng.choice(pool) if maker.version > 2 and rng.random() < 0.6 else None
        if type in NANO_TYPES:  # pyiceberg can't read the metadata
            default = None
        if isinstance(default, float) and not (abs(default) < 1e30):  # JSON has no word for it
            default = 1.5
        self._say("add", name, type, "default", default)
        maker.evolve_schema(add={name: type}, defaults={} if default is None else {name: default})
        self.pools[maker.field(name).id] = pool

    def evolve_spec(self) -> None:
        fields = self._spec()
        if self.maker.version == 1 and len(self.maker.specs) > 4:
            return
        self._say("spec", fields)
        self.maker.evolve_spec(fields)

    def _spec(self) -> list[tuple[str, str]]:
        rng, maker = self.rng, self.maker
        fields: dict[tuple[str, str], None] = {}
        sources = [(".".join(p), f) for p, f in all_fields(maker.schema) if all("." not in n for n in p)]
        sources = [(p, f) for p, f in sources if transforms(f.type, rng)]
        if self.readable:
            sources = [(p, f) for p, f in sources if f.type not in ("float", "double")]
        for _ in range(rng.choice([0, 1, 1, 1, 2])):
            if sources:
                path, f = rng.choice(sources)
                transform = rng.choice(transforms(f.type, rng))
                if not self.readable and rng.random() < 0.04:
                    transform = "zorder[3]"
                if all(p != path for p, _ in fields):
                    fields[path, transform] = None
        return [*fields]

    # -- deletes -------------------------------------------------------------------------------

    def _places(self) -> list[tuple[str, int]]:
        rng = self.rng
        places = self.maker.places()
        if rng.random() < 0.3 and places:  # most rows of one file
            path = rng.choice(places)[0]
            places = [p for p in places if p[0] == path]
            return places if rng.random() < 0.3 else [p for p in places if rng.random() < 0.8]
        return rng.sample(places, min(len(places), rng.choice([1, 3, 10])))

    def delete_positions(self) -> None:
        if self.maker.version != 2:
            return
        scope = self.rng.choice(["file", "partition"])
        places = self._places()
        if places:
            self._say("delete positions", scope, len(places))
            self.maker.delete_positions(places, scope=scope)

    def delete_vector(self) -> None:
        if self.maker.version < 3:
            return
        vectors: dict[str, set[int]] = {}
        for path, pos in self._places():
            vectors.setdefault(path, set()).add(pos)
        merge = (
            self.rng.random() < 0.8
        )  # without it rows come back: a vector stands for all deletes of a file
        for one in self.maker.live():
            if one.file.path in vectors and merge:
                vectors[one.file.path] |= one.deleted
        if vectors:
            self._say("delete vectors", {p[-20:]: len(v) for p, v in vectors.items()})
            self.maker.delete_vector({p: sorted(v) for p, v in vectors.items()})

    def delete_equal(self) -> None:
        if self.maker.version < 2 or self.readable:
            return
        options = self._equal_options()
        if options:
            self.maker.delete_equal(options.pop("ids"), options.pop("keys"), **options)

    def _equal_options(self) -> dict[str, Any]:
        rng, maker = self.rng, self.maker
        fields = [f for _, f in all_fields(maker.schema) if isinstance(f.type, str)]
        chosen = rng.sample(fields, min(len(fields), rng.choice([1, 1, 2, 3])))
        files = maker.live()
        if not files:
            return {}
        keys = []
        for _ in range(rng.choice([0, 1, 2, 5, 10])):
            one = rng.choice(files)
            row = rng.randrange(one.file.records) if one.file.records else None
            seen = [maker.leaf(one.file, f.id)[row] if row is not None else None for f in chosen]
            if rng.random() < 0.2:
                at = rng.randrange(len(chosen))
                pool = self.pools.get(chosen[at].id, [7])
                seen[at] = rng.choice([None, *self._grown(str(chosen[at].type), pool)])
            if not any(v is None and f.required for f, v in zip(chosen, seen, strict=True)):
                keys.append(tuple(seen))
        partitions = None
        if rng.random() < 0.6:
            spots = {partition_key(one.file): (one.file.spec.id, one.file.partition) for one in files}
            partitions = rng.sample([*spots.values()], min(len(spots), rng.choice([1, 2, 5])))
        extra = [rng.choice([f.id for f in maker.schema if not f.required])] if rng.random() < 0.2 else []
        options = {"partitions": partitions, "metrics": rng.choice(self.modes), "extra": extra}
        self._say("delete equal", [f.name for f in chosen], keys, options)
        return {"ids": [f.id for f in chosen], "keys": keys, **options}

    def row_delta(self) -> None:
        """Rows and deletes in one commit: the deletes by equality leave the new rows alone."""
        maker = self.maker
        if maker.version < 2 or self.readable:
            return
        options = self._file_options()
        self._say("row delta", options)
        files = maker.files_of(self.rows(10, maker.schemas[options["schema"]]), **options)
        equal = self._equal_options()
        if equal:
            files += maker.equality_files(equal.pop("ids"), equal.pop("keys"), **equal)
        places = self._places() if maker.version == 2 else []
        files += maker.position_files(places, scope="partition")
        maker.commit("overwrite", files)

    # -- the rest ------------------------------------------------------------------------------

    def _branches(self) -> list[str]:
        return [name for name, (_, kind) in self.maker.refs.items() if kind == "branch"]

    def remove(self) -> None:
        rng, maker = self.rng, self.maker
        paths = [one.file.path for one in maker.live()]
        gone = rng.sample(paths, min(len(paths), rng.choice([1, 2])))
        if not gone:
            return
        if rng.random() < 0.5:
            self._say("remove", len(gone))
            maker.remove_files(gone)
        else:
            options = self._file_options()
            self._say("overwrite", len(gone), options)
            maker.overwrite(self.rows(5, maker.schemas[options["schema"]]), gone, **options)

    def rewrite_manifests(self) -> None:
        self._say("rewrite manifests")
        self.maker.rewrite_manifests()

    def name(self) -> None:
        self.tags += 1
        if self.rng.random() < 0.6:
            self._say("tag", f"t{self.tags}")
            self.maker.tag(f"t{self.tags}")
        else:
            self._say("branch", f"b{self.tags}")
            self.maker.branch(f"b{self.tags}")

    def upgrade(self) -> None:
        if self.maker.version < 3 and not self.readable:
            self._say("upgrade")
            self.maker.upgrade(self.maker.version + 1)

    def rollback(self) -> None:
        known = [id for _, id in self.maker.log if id not in self.maker.expired]
        if known:
            self._say("rollback")
            self.maker.rollback(self.rng.choice(known))

    def expire(self) -> None:
        self._say("expire")
        self.maker.expire(keep=2)


def _leaves(fields: Sequence[Field]) -> list[Field]:
    """Every primitive field, also below lists and maps."""
    out = []
    for f in fields:
        match f.type:
            case Struct(inner):
                out += _leaves(inner)
            case List(id, element):
                out += _leaves([Field(id, "element", element)])
            case Map(key_id, key, value_id, value):
                out += _leaves([Field(key_id, "key", key), Field(value_id, "value", value)])
            case _:
                out.append(f)
    return out


def _below(field: Field) -> list[int]:
    return [f.id for f in _leaves([field])]


def random_chain(
    seed: str,
    root: Path,
    *,
    readable: bool = False,
    metrics: str | None = None,
    between: Callable[[Maker, list[str]], None] | None = None,
) -> Chain:
    """The chain of this seed: the same at every call."""
    return Chainer(seed, root, readable=readable, metrics=metrics).run(between)
