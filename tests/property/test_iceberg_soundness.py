"""Every way to scan an Iceberg table gives the oracle's rows: random chains × snapshots × predicates.

``SKIPSTONE_CASES`` sets how many cases run, ``SKIPSTONE_REPLAY=ice:12:3`` runs one of them again and keeps
its files.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skipstone as sk
from skipstone.errors import SchemaError, TypeMismatchError, UsageError
from skipstone.iceberg.partitions import filter as partition_filter
from skipstone.predicate import tree
from skipstone.report.trace import FilterStats
from tests.iceberg._chains import Chain, random_chain
from tests.iceberg._maker import Maker
from tests.iceberg._table import partition_key
from tests.iceberg._types import tagged
from tests.iceberg._worlds import At, ChainWorld, ask, world
from tests.property._frame import REPLAY, answer, drawer, replay, run_part, run_ways
from tests.property._indexes import IndexCase, as_if_large, leaf_names
from tests.property._oracle import CantEvaluate
from tests.property._predicates import Predicates
from tests.property._scans import SHARES, WAYS
from tests.support.samples import sample

PER_CHAIN = 3
WAYS_PER_CASE = 2
PARTS = 2


def enter(chain: Chain, rng: random.Random) -> ChainWorld:
    """Open the table at some snapshot."""
    asked, snapshot, schema = ask(rng, chain.maker)
    opened = sk.open(chain.maker.metadata_location, stay_below_root=rng.random() < 0.5)
    return world(chain, opened if asked is None else At(opened, asked), snapshot, schema)


def explained(seed: str, chain: Chain, work: Callable[[], Any]) -> Any:
    """Do it; a failure says how to do it again."""
    try:
        return work()
    except AssertionError:
        raise
    except Exception as error:
        steps = "\n  ".join(chain.words)
        note = f"SKIPSTONE_REPLAY={seed}\n{chain.maker.metadata_location}\n  {steps}"
        raise AssertionError(f"{type(error).__name__}: {error}\n{note}") from error


class Indexer:
    """Builds an index of the table at some of its states; later ones are asked with it."""

    def __init__(self, seed: str, count: Counter[str]) -> None:
        self.rng = random.Random(f"{seed}:index")
        self.count = count
        self.share = self.rng.choice([0.0, 0.0, 0.3])
        self.built = False

    def __call__(self, maker: Maker, words: list[str]) -> None:
        if self.rng.random() >= self.share:
            return
        opened = sk.open(maker.metadata_location)
        if self.built and self.rng.random() < 0.5:
            words.append(f"index refreshed: {opened.index.refresh(engine='local')}")
        else:
            names = leaf_names(opened.query_schema, set())
            columns = self.rng.sample(names, self.rng.randrange(1, len(names) + 1))
            choice: dict[str, Any] = {"blooms": self.rng.choice([None, False, columns])}
            if self.rng.random() < 0.5:
                choice |= {"columns": columns, "values": self.rng.choice([True, False, None])}
            words.append(f"index built with {choice}")
            self.built = True
            words[-1] += f": {opened.index.build(engine='local', **choice)}"
        self.count["indexes"] += 1


def run_chain(seed: str, folder: Path, numbers: range, count: Counter[str]) -> None:
    """Check predicates of these numbers about one table, each at some snapshot."""
    with as_if_large(random.Random(f"{seed}:large")):
        _run_chain(seed, folder, numbers, count)


def _run_chain(seed: str, folder: Path, numbers: range, count: Counter[str]) -> None:
    chain = random_chain(seed, folder / seed.replace(":", "-"), between=Indexer(seed, count))
    count["chains"] += 1
    count["specs"] += len(chain.maker.specs)
    count["schemas"] += len(chain.maker.schemas)
    explained(seed, chain, lambda: check_folders(chain.maker, count))
    for number in numbers:
        case = f"{seed}:{number}"
        made = explained(case, chain, lambda case=case: enter(chain, random.Random(f"{case}:at")))
        count["with deletes"] += bool((~made.live).any())
        run_case(case, made, count)


def check_folders(maker: Maker, count: Counter[str]) -> None:
    """No directory of the table, with files or above some, opens as a lake: deleted rows would be back."""
    files = {path.parent for path in maker.root.rglob("*.parquet")}
    folders = {
        folder for file in files for folder in (file, *file.parents) if folder.is_relative_to(maker.root)
    }
    for folder in folders | {maker.root.parent}:
        with pytest.raises(UsageError, match="an Iceberg table"):
            sk.open(folder)
        count["folders"] += 1


def run_case(seed: str, made: ChainWorld, count: Counter[str]) -> None:
    """One predicate, several ways."""
    rng = random.Random(seed)
    another = drawer(rng, made, made.lake.made, count)
    first: tuple[tree.Predicate | None, np.ndarray] = another()
    if rng.random() < 0.1:
        first = None, made.live
    case = IndexCase(seed, made, *first, another, count)
    run_ways(case, [(way, WAYS[way]) for way in rng.choices([*WAYS], SHARES, k=WAYS_PER_CASE)])


@pytest.mark.parametrize("part", range(PARTS))
def test_scans_agree_with_the_oracle(part: int, tmp_path: Path) -> None:
    cases = sample("tables") / PARTS
    count = run_part("ice", run_chain, tmp_path, part, cases, PER_CHAIN)
    total = count["cases"]
    assert 0.3 * total < count["with matches"] < total
    assert 0.3 * total < count["with misses"] <= total
    assert count["with deletes"] > 0.15 * total
    assert count["specs"] > 1.5 * count["chains"]
    assert count["schemas"] > 1.3 * count["chains"]
    assert count["plans with a dropped row"] > 0.3 * count["plan"]
    assert count["plans with a proven row"] > 0.05 * count["plan"]
    assert count["indexes"] > 0.1 * count["chains"]
    assert count["folders"] > 3 * count["chains"]
    assert total < 200 or all(count[way] for way in WAYS)
    assert count["overflows"] <= 0.02 * total + 1


# -- name mappings -----------------------------------------------------------------------------


def run_mapped(seed: str, folder: Path, count: Counter[str]) -> None:
    """Ask about every column of a table whose name mapping has changed, with files that go by it."""
    chain = random_chain(seed, folder, mapped=True, between=Indexer(seed, count))
    rng, maker = random.Random(f"{seed}:at"), chain.maker
    made = explained(seed, chain, lambda: enter(chain, rng))
    for path, (family, pool) in made.lake.made.pools.items():
        if any("." in name for name in path):
            continue
        literal = sk.lit(Predicates(rng, made.lake.made).scalar(family, pool))
        column = sk.col(*path)
        for predicate in (column.is_null(), column.is_not_null(), tree.Compare("<=", column, literal)):
            try:
                wanted = answer(made, predicate)
            except (CantEvaluate, TypeMismatchError):
                continue
            scan = made.opened.scan(predicate)
            found = explained(seed, chain, scan.count), explained(seed, chain, scan.to_arrow).num_rows
            steps = "\n  ".join([seed, str(predicate), *chain.words, made.lake.words])
            assert found == (wanted.sum(), wanted.sum()), steps
            count["cases"] += 1
    written = [maker.written[file.file.path] for file in maker.live()]
    count["without ids"] += any(not file.ids for file in written)
    count["unsettled"] += any(
        field.name not in maker.names[field.id] for file in written if not file.ids for field in file.fields
    )


def test_name_mappings_that_change(tmp_path: Path) -> None:
    count: Counter[str] = Counter()
    chains = sample("tables, name mappings")
    for number in range(chains):
        run_mapped(f"mapped:{number}", tmp_path / str(number), count)
    assert count["without ids"] > 0.5 * chains
    assert count["unsettled"] > 0.3 * chains
    assert count["cases"] > 10 * chains
    assert count["indexes"] > 0.1 * chains


# -- the partition filter, with faults ---------------------------------------------------------


class Faults:
    """Makes the partition filter fail for some specs, and for some partition values."""

    def __init__(self, specs: set[int], values: set[Any]) -> None:
        self.specs, self.values = specs, values
        self._project, self._evaluate = partition_filter.project_spec, partition_filter.evaluate

    def project(self, node: Any, spec: Any, columns: Any) -> Any:
        if spec.spec_id in self.specs:
            raise RuntimeError("an injected fault of projection")
        return self._project(node, spec, columns)

    def evaluate(self, projection: Any, partitions: Any) -> Any:
        if any(tuple(tagged(v) for v in values) in self.values for values in partitions):
            raise RuntimeError("an injected fault of evaluation")
        return self._evaluate(projection, partitions)

    def summaries(self, projection: Any, manifests: Any) -> Any:
        raise RuntimeError("an injected fault of ranges")

    def inject(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(partition_filter, "project_spec", self.project)
        patch.setattr(partition_filter, "evaluate", self.evaluate)
        # So that every manifest is opened, and its keys are counted.
        patch.setattr(partition_filter, "evaluate_summaries", self.summaries)


def expected_stats(chain: Chain, snapshot: int, field: int, faults: Faults) -> FilterStats:
    """The counts, from the table's own story; every file with rows is a candidate, as nothing excludes it."""
    blind, unconstrained = set(faults.specs), 0
    for spec in chain.maker.specs.values():
        mine = [f for f in spec.fields if f.source == field and not f.is_void]
        known = [f for f in mine if not f.transform.startswith("zorder")]
        if mine and not known:
            blind.add(spec.id)
        elif not known and spec.id not in blind:
            unconstrained += 1
    errors, open_keys, files = set(), set(), 0
    for one in chain.maker.live(snapshot):
        key = partition_key(one.file)
        values = () if one.file.spec.unpartitioned else tuple(tagged(v) for v in one.file.partition)
        if one.file.spec.id in blind:
            open_keys.add(key)
        elif values in faults.values:
            errors.add(key)
            open_keys.add(key)
        files += key in open_keys and one.file.records > 0
    return FilterStats(len(blind), len(errors), len(open_keys), files, unconstrained)


@pytest.mark.parametrize("part", range(PARTS))
def test_filter_stats_count_injected_faults(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: Counter[str] = Counter()
    for number in range(sample("tables, partition faults") // PARTS):
        seed = f"faults:{part * 100_000 + number}"
        rng = random.Random(seed)
        chain = random_chain(seed, tmp_path / str(number), metrics="none")
        maker = chain.maker
        head = maker.refs["main"][0]
        opened = sk.open(maker.metadata_location)
        made = world(chain, opened, head, maker.current_schema)
        if not made.live.any():
            continue
        keys = [f.file.partition for f in maker.live() if not f.file.spec.unpartitioned]
        values = {tuple(tagged(v) for v in key) for key in keys if rng.random() < 0.3}
        specs = {id for id in maker.specs if rng.random() < 0.3} or {*rng.sample([*maker.specs], number % 2)}
        faults = Faults(specs, values)
        with monkeypatch.context() as patch:
            faults.inject(patch)
            for _ in range(3):
                path, predicate = some_leaf(rng, made)
                field = maker.field(".".join(path))
                wanted = made.mask(predicate)
                if not wanted.any():
                    continue
                scan = made.opened.scan(predicate)
                expected = expected_stats(chain, head, field.id, faults)
                note = f"{seed}: {predicate}\n" + "\n".join([*chain.words, made.lake.words])
                assert scan.plan().trace.partitions == expected, note
                assert scan.count() == int(wanted.sum()), note
                if expected.fail_open_partitions:
                    with pytest.raises(SchemaError, match="can't be judged"):
                        made.opened.scan(predicate, strict=True).plan()
                for name in ("unevaluable_specs", "eval_errors", "fail_open_files", "unconstrained_specs"):
                    seen[name] += getattr(expected, name) > 0
    assert min(seen.values()) > 0
    assert len(seen) == 4


def some_leaf(rng: random.Random, made: ChainWorld) -> tuple[tuple[str, ...], tree.Predicate]:
    """A comparison of one column that only its values decide."""
    makes = Predicates(rng, made.lake.made)
    while True:
        path = rng.choice([p for p in makes.paths if all("." not in name for name in p)])
        family, pool = made.lake.made.pools[path]
        literal = sk.lit(makes.scalar(family, pool))
        predicate = tree.Compare(rng.choice(["=", "<=", ">", "<>"]), sk.col(*path), literal)
        try:
            answer(made, predicate)
        except (CantEvaluate, TypeMismatchError):
            continue
        return path, predicate


if REPLAY.startswith("ice:"):

    def test_replay(tmp_path: Path) -> None:
        replay(run_chain, tmp_path)
