"""Random tables, each from one seed: chains of appends, deletes, changes of schema and spec, and the rest."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.iceberg._maker import Maker
from tests.iceberg._mapping import every_field
from tests.iceberg._metrics import MODES
from tests.iceberg._parquet import WRITERS
from tests.iceberg._table import IllegibleError, partition_key
from tests.iceberg._types import DAY_MICROS, Field, Struct, all_fields
from tests.iceberg._values import NANO_TYPES, WIDER, Values, all_leaves, family, transforms
from tests.property._lakes import ROW_ID
from tests.property._layouts import Family
from tests.property._layouts import Table as Pools


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

    def __init__(
        self,
        seed: str,
        root: Path,
        *,
        readable: bool = False,
        metrics: str | None = None,
        mapped: bool = False,
        writable: bool = False,
    ) -> None:
        self.rng = random.Random(f"chain:{seed}")
        self.mapped = mapped
        """Whether there must be a name mapping that changes, and files without ids."""
        self.modes = MODES if metrics is None else (metrics,)
        self.writable = writable
        """Whether pyiceberg must be able to rewrite its manifests: version 2, and none that it can't read."""
        self.readable = readable
        """Whether pyiceberg must be able to read it: no equality deletes, no lists of structs (NULL becomes
        an empty one), no floats as partitions (it rounds them, and loses deletes of a NaN partition)."""
        rng = self.rng
        choice = rng.choice([1, 2, 2, 2]) if readable else rng.choice([1, 2, 2, 3, 3])
        version = 2 if writable else choice
        self.words: list[str] = []
        self.values = Values(rng, readable=readable)
        self.maker = Maker(
            root,
            self.values.columns(version),
            format_version=version,
            seed=seed,
            scheme=rng.choice(["", "file://"]),
            name_mapping=rng.random() < 0.3 or mapped,
            required=[ROW_ID] if not readable and rng.random() < 0.5 else [],
            odd=rng.random() < 0.5 and not readable and not writable,
            totals=rng.choice(["right", "none", "wrong"]),
        )
        self.tags = 0
        self.values.fill(self.maker.schema)

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
            (self.edit_mapping, (8 if self.mapped else 1.5) if self._may_reuse_names else 0),
        ]
        for _ in range(rng.randrange(2, 11)):
            if between is not None:
                between(maker, self.words)
            (step,) = rng.choices([s for s, _ in steps], [w for _, w in steps])
            try:
                step()
            except IllegibleError:
                self._say("which no reader could follow: left out")
        return Chain(maker, self.values.pools, self.words)

    def _say(self, *what: Any) -> None:
        self.words.append(" ".join(map(str, what)))

    # -- steps ---------------------------------------------------------------------------------

    def append(self) -> None:
        maker = self.maker
        options = self._file_options()
        columns = self.values.rows(self.rng.choice([1, 5, 20, 30, 40]), maker.schemas[options["schema"]])
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
            "ids": not maker.name_mapping or rng.random() < (0.3 if self.mapped else 0.6),
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
        elif kind == "swap" and self._may_reuse_names:
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
        type = self.values.random_type(maker.version)
        gone = {f.name: f for s in maker.schemas for f in s if f.name not in {f.name for f in maker.schema}}
        name = f"n{len(maker.schemas)}"
        if gone and self._may_reuse_names and rng.random() < 0.5:
            name = rng.choice(sorted(gone))
            # Files without ids have the old column under the new one's name: in a type that can be read.
            if maker.name_mapping and isinstance(gone[name].type, str) and rng.random() < 0.8:
                type = str(gone[name].type)
        structs = [p for p, f in plain.items() if isinstance(f.type, Struct)]
        if structs and rng.random() < 0.4:
            name = f"{rng.choice(structs)}.n{len(maker.schemas)}"
        pool = self.values.pool(type)
        default = rng.choice(pool) if maker.version > 2 and rng.random() < 0.6 else None
        if type in NANO_TYPES:  # pyiceberg can't read the metadata
            default = None
        if isinstance(default, float) and not (abs(default) < 1e30):  # JSON has no word for it
            default = 1.5
        self._say("add", name, type, "default", default)
        maker.evolve_schema(add={name: type}, defaults={} if default is None else {name: default})
        self.values.pools[maker.field(name).id] = pool

    @property
    def _may_reuse_names(self) -> bool:
        """Whether names may go to other columns; with mappings readers differ in what they make of it."""
        return not (self.readable and self.maker.name_mapping)

    def edit_mapping(self) -> None:
        """Change the name mapping by hand: what files without ids hold is another matter from now on."""
        rng, maker = self.rng, self.maker
        if not maker.name_mapping:
            return
        fields = [f for f in every_field(maker.schema) if f.name != ROW_ID]
        leaves = [f for f in maker.schema if f.name != ROW_ID and isinstance(f.type, str)]
        kind = rng.choice(["forget", "forget", "other", "more", "swap", "swap", "restore"])
        names: dict[int, list[str]] = {}
        if kind == "swap":
            pairs = [(a, b) for a in leaves for b in leaves if a.id < b.id and a.type == b.type]
            if pairs:
                one, two = rng.choice(pairs)
                names = {one.id: maker.names[two.id], two.id: maker.names[one.id]}
        elif fields:
            field = rng.choice(fields)
            own, foreign = maker.names[field.id], f"foreign {field.id}"
            found = {"forget": [], "other": [foreign], "more": [*own, foreign], "restore": [field.name]}
            names = {field.id: found[kind]}
        self._say("mapping", kind, names)
        maker.map_names(names)

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
                pool = self.values.pools.get(chosen[at].id, [7])
                seen[at] = rng.choice([None, *self.values.grown(str(chosen[at].type), pool)])
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
        files = maker.files_of(self.values.rows(10, maker.schemas[options["schema"]]), **options)
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
            maker.overwrite(self.values.rows(5, maker.schemas[options["schema"]]), gone, **options)

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
        if self.maker.version < 3 and not self.readable and not self.writable:
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


def _below(field: Field) -> list[int]:
    return [f.id for f in all_leaves([field])]


def random_chain(
    seed: str,
    root: Path,
    *,
    readable: bool = False,
    metrics: str | None = None,
    mapped: bool = False,
    writable: bool = False,
    between: Callable[[Maker, list[str]], None] | None = None,
) -> Chain:
    """The chain of this seed: the same at every call."""
    made = Chainer(seed, root, readable=readable, metrics=metrics, mapped=mapped, writable=writable)
    return made.run(between)
