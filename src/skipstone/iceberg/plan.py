"""File planning from manifests: the data files that may match, and the delete files that apply to each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec

from skipstone.core.evidence import Array, ColumnFacts, Evidence
from skipstone.core.ir.nodes import ColumnRef, Node
from skipstone.core.judge import Verdict, judge
from skipstone.iceberg.deletes.match import DeleteLinks, DeleteMatches, Facts
from skipstone.iceberg.inventory import Inventory
from skipstone.iceberg.manifests.entries import Entries
from skipstone.iceberg.partitions.filter import PartitionFilter, PartitionVerdicts
from skipstone.lake.snapshot import Path, PrunedFiles
from skipstone.prune.ledger import Blame, Ledger
from skipstone.report.trace import Cause, Drop, FilterStats, Note


@dataclass(frozen=True, slots=True, eq=False)
class PartitionPruning:
    """Files left by a filter on partitions, and that filter, which counts what it could not judge."""

    files: Array
    filter: PartitionFilter


@dataclass(frozen=True, slots=True, eq=False)
class FilePruner:
    """Prunes the data files of a snapshot by manifests, partitions and file metrics."""

    inventory: Inventory
    specs: Mapping[int, PartitionSpec]
    columns: Mapping[int, ColumnRef]
    facts: Facts
    ledger: Ledger
    strict: bool

    def prune_files(self, node: Node | None) -> PrunedFiles:
        """The files that may match, and those whose rows all match."""
        if node is None:
            return self._everything()
        chosen = PartitionFilter(node, self.specs, self.columns, strict=self.strict)
        entries, numbers, partitions = self._judge_partitions(chosen)
        drops = Blame.all_by(partitions.judgement, Cause.PARTITION).drops
        by_key = np.bincount(entries.partitions, entries.rows, len(entries.keys)).astype(np.int64)
        self.ledger.level("partitions", partitions.verdicts, by_key, drops)
        left = np.flatnonzero(partitions.kept[entries.partitions])
        verdicts = self._files(node, chosen, entries, left)
        may = verdicts != Verdict.NONE
        kept = left[may]
        candidates = (
            [entries.keys[code] for code in entries.partitions[kept].tolist()]
            if (partitions.fail_open.any())
            else []
        )
        for warning in chosen.warnings:
            unit = "partitions" if warning.spec_id is None else f"partition spec {warning.spec_id}"
            times = f" ({warning.count} times)" if warning.count > 1 else ""
            self.ledger.notes.add(unit, f"kept without a judgement: {warning.message}{times}")
        return PrunedFiles(
            numbers[kept],
            True,
            (verdicts[may] == Verdict.ALL) & (entries.rows[kept] > 0),
            entries.rows[kept],
            int(entries.rows.sum() - entries.rows[kept].sum()),
            chosen.stats(candidates),
        )

    def prune_partitions(self, node: Node | None) -> PartitionPruning:
        """The files whose partition may match, whatever their metrics say."""
        chosen = PartitionFilter(node, self.specs, self.columns, strict=self.strict)
        entries, numbers, partitions = self._judge_partitions(chosen)
        return PartitionPruning(numbers[partitions.kept[entries.partitions]], chosen)

    def _everything(self) -> PrunedFiles:
        entries, numbers = self.inventory.everything
        verdicts = np.full(len(entries), Verdict.ALL, dtype=np.int8)
        self.ledger.level("files", verdicts, entries.rows)
        return PrunedFiles(numbers, True, entries.rows > 0, entries.rows)

    def _judge_partitions(self, chosen: PartitionFilter) -> tuple[Entries, Array, PartitionVerdicts]:
        """The files of manifests that may match, their numbers, and the verdicts of their partitions."""
        whole = self.inventory.whole
        if whole is None:
            entries, numbers = self.inventory.joined(self._manifests(chosen))
            return entries, numbers, chosen.judge(entries.keys)
        # With all entries in memory, the verdict of a manifest follows from its partitions.
        partitions = chosen.judge(whole.keys)
        firsts = self.inventory.firsts
        verdicts = partitions.verdicts[whole.partitions]
        some, none = (_count_runs(verdicts == one, firsts) for one in (Verdict.SOME, Verdict.NONE))
        by_manifest = np.full(len(some), Verdict.SOME, dtype=np.int8)
        by_manifest[some + none == 0] = Verdict.ALL
        by_manifest[none == np.diff(firsts)] = Verdict.NONE
        rows = np.diff(np.concatenate([[0], np.cumsum(whole.rows)])[firsts])
        self.ledger.level("manifests", by_manifest, rows, lambda: _manifest_drops(chosen, by_manifest))
        return whole, np.arange(len(whole)), partitions

    def _manifests(self, chosen: PartitionFilter) -> Array:
        """The manifests that may match according to their partition summaries."""
        infos = self.inventory.infos
        specs = np.array([info.spec_id for info in infos], dtype=np.int64)
        verdicts = np.full(len(infos), Verdict.SOME, dtype=np.int8)
        for spec in np.unique(specs).tolist():
            mine = np.flatnonzero(specs == spec)
            verdicts[mine] = chosen.manifests(spec, [infos[number].partitions for number in mine.tolist()])
        rows = np.array(
            [(info.added_rows or 0) + (info.existing_rows or 0) for info in infos], dtype=np.int64
        )
        self.ledger.level("manifests", verdicts, rows, lambda: _manifest_drops(chosen, verdicts))
        return np.flatnonzero(verdicts != Verdict.NONE)

    def _files(self, node: Node, chosen: PartitionFilter, entries: Entries, left: Array) -> Array:
        """Verdicts of files by their metrics and partitions."""
        some = entries if len(left) == len(entries) else entries.take(left)
        queried = {ref.path for ref in node.refs()}
        by_key, codes = chosen.facts(some.keys), some.partitions
        columns: dict[Path, ColumnFacts] = {}
        for field_id, ref in self.columns.items():
            if ref.path not in queried:
                continue
            mine = self.facts(some, field_id)
            partition = by_key.get(ref.path)
            columns[ref.path] = mine if partition is None else mine.intersect(partition.take(codes))
        # Only its footer proves that a file recorded without rows is empty.
        evidence = Evidence(np.where(some.rows == 0, -1, some.rows), columns)
        cleared = {leaf: mask[codes] for leaf, mask in chosen.cleared(some.keys).items()}
        judgement = judge(node, evidence, cleared)
        verdicts = judgement.verdicts()
        self.ledger.level("files", verdicts, some.rows, lambda: Blame.of(judgement, evidence).drops())
        return verdicts


def _manifest_drops(chosen: PartitionFilter, verdicts: Array) -> tuple[Drop, ...]:
    dropped = int((verdicts == Verdict.NONE).sum())
    return (Drop(Cause.PARTITION, chosen.condition, dropped),) if dropped else ()


def _count_runs(mask: Array, firsts: Array) -> Array:
    """Number of set values in each run."""
    counts: Array = np.diff(np.concatenate([[0], np.cumsum(mask)])[firsts])
    return counts


# -- the plan ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FilePlan:
    """Data files of a table that may match according to its manifests."""

    entries: Entries
    whole: Array
    """Per file, whether all rows that are not deleted match."""
    deletes: DeleteMatches | None
    """Delete files that apply; None for a table without any."""
    filter_stats: FilterStats
    notes: tuple[Note, ...] = ()

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def paths(self) -> list[str]:
        """Locations of the files."""
        paths: list[str] = self.entries.paths.to_pylist()
        return paths

    @property
    def rows(self) -> int:
        """Rows of the files, including deleted ones."""
        return int(self.entries.rows.sum())

    @cached_property
    def table(self) -> pa.Table:
        """One row per file, with its delete files."""
        entries = self.entries
        return pa.table(
            {
                "path": entries.paths,
                "bytes": pa.array(entries.sizes),
                "rows": pa.array(entries.rows),
                "spec_id": pa.array(entries.specs),
                "sequence": pa.array(entries.sequences),
                "whole": pa.array(self.whole),
                "deletes": self._delete_paths(),
            }
        )

    def _delete_paths(self) -> pa.Array:
        matched = self.deletes
        if matched is None:
            offsets = pa.array(np.zeros(len(self) + 1, dtype=np.int32))
            return pa.ListArray.from_arrays(offsets, pa.array([], pa.large_string()))
        vectors = np.flatnonzero(matched.vectors >= 0)
        parts = [_pairs(matched.positions), _pairs(matched.equalities), (vectors, matched.vectors[vectors])]
        owners = np.concatenate([owner for owner, _ in parts])
        numbers = np.concatenate([number for _, number in parts])
        order = np.argsort(owners, kind="stable")
        offsets = np.zeros(len(self) + 1, dtype=np.int32)
        np.cumsum(np.bincount(owners, minlength=len(self)), out=offsets[1:])
        paths = matched.deletes.paths.take(pa.array(numbers[order]))
        return pa.ListArray.from_arrays(pa.array(offsets), paths)

    def __repr__(self) -> str:
        return f"FilePlan({len(self):,} files, {self.rows:,} rows)"


def _pairs(links: DeleteLinks) -> tuple[Array, Array]:
    return links.pairs(np.arange(len(links.counts)))
