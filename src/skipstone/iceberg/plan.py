"""A plan of whole files: which may hold a match, and which delete files apply to each; no file is opened."""

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
from skipstone.iceberg.deletes.match import DeleteMatches, Facts, Links
from skipstone.iceberg.inventory import Inventory
from skipstone.iceberg.manifests.entries import Entries
from skipstone.iceberg.partitions.filter import PartitionFilter, PartitionVerdicts
from skipstone.lake.snapshot import Path, PrunedFiles
from skipstone.prune.ledger import Blame, Ledger
from skipstone.report.trace import Cause, FilterStats, Note


@dataclass(frozen=True, slots=True, eq=False)
class FilePruner:
    """The data files of a snapshot, and what it takes to judge them."""

    inventory: Inventory
    specs: Mapping[int, PartitionSpec]
    columns: Mapping[int, ColumnRef]
    facts: Facts
    ledger: Ledger
    strict: bool

    def prune_files(self, node: Node | None) -> PrunedFiles:
        """The files that may hold a match, and those of which every row does."""
        if node is None:
            return self._everything()
        chosen = PartitionFilter(node, self.specs, self.columns, strict=self.strict)
        entries, numbers, partitions = self._judged(chosen)
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
            place = "partitions" if warning.spec_id is None else f"partition spec {warning.spec_id}"
            times = f" ({warning.count} times)" if warning.count > 1 else ""
            self.ledger.notes.add(place, f"kept without a judgement: {warning.message}{times}")
        return PrunedFiles(
            numbers[kept],
            True,
            (verdicts[may] == Verdict.ALL) & (entries.rows[kept] > 0),
            entries.rows[kept],
            int(entries.rows.sum() - entries.rows[kept].sum()),
            chosen.stats(candidates),
        )

    def _everything(self) -> PrunedFiles:
        entries, numbers = self.inventory.everything
        verdicts = np.full(len(entries), Verdict.ALL, dtype=np.int8)
        self.ledger.level("files", verdicts, entries.rows)
        return PrunedFiles(numbers, True, entries.rows > 0, entries.rows)

    def _judged(self, chosen: PartitionFilter) -> tuple[Entries, Array, PartitionVerdicts]:
        """The files of the manifests that may have a match, their numbers, and the verdicts of partitions."""
        whole = self.inventory.whole
        if whole is None:
            entries, numbers = self.inventory.joined(self._manifests(chosen))
            return entries, numbers, chosen.judge(entries.keys)
        # All is at hand: a manifest is what its partitions are.
        partitions = chosen.judge(whole.keys)
        firsts = self.inventory.firsts
        verdicts = partitions.verdicts[whole.partitions]
        some, none = (_counted(verdicts == one, firsts) for one in (Verdict.SOME, Verdict.NONE))
        found = np.full(len(some), Verdict.SOME, dtype=np.int8)
        found[some + none == 0] = Verdict.ALL
        found[none == np.diff(firsts)] = Verdict.NONE
        rows = np.diff(np.concatenate([[0], np.cumsum(whole.rows)])[firsts])
        self.ledger.level("manifests", found, rows)
        return whole, np.arange(len(whole)), partitions

    def _manifests(self, chosen: PartitionFilter) -> Array:
        """The manifests that may have a file with a match, by the ranges of their partition values."""
        notes = self.inventory.notes
        specs = np.array([note.spec_id for note in notes], dtype=np.int64)
        verdicts = np.full(len(notes), Verdict.SOME, dtype=np.int8)
        for spec in np.unique(specs).tolist():
            mine = np.flatnonzero(specs == spec)
            verdicts[mine] = chosen.manifests(spec, [notes[number].partitions for number in mine.tolist()])
        rows = np.array(
            [(note.added_rows or 0) + (note.existing_rows or 0) for note in notes], dtype=np.int64
        )
        self.ledger.level("manifests", verdicts, rows)
        return np.flatnonzero(verdicts != Verdict.NONE)

    def _files(self, node: Node, chosen: PartitionFilter, entries: Entries, left: Array) -> Array:
        """Verdicts of files by their metrics, together with what their partitions say."""
        some = entries if len(left) == len(entries) else entries.take(left)
        queried = {ref.path for ref in node.refs()}
        by_key, codes = chosen.facts(some.keys), some.partitions
        columns: dict[Path, ColumnFacts] = {}
        for field_id, ref in self.columns.items():
            if ref.path not in queried:
                continue
            mine = self.facts(some, field_id)
            given = by_key.get(ref.path)
            columns[ref.path] = mine if given is None else mine.narrowed(given.take(codes))
        # Whether a file that claims to have no rows is empty is for its footer to say.
        evidence = Evidence(np.where(some.rows == 0, -1, some.rows), columns)
        cleared = {leaf: mask[codes] for leaf, mask in chosen.cleared(some.keys).items()}
        judgement = judge(node, evidence, cleared)
        verdicts = judgement.verdicts()
        self.ledger.level("files", verdicts, some.rows, lambda: Blame.of(judgement, evidence).drops())
        return verdicts


def _counted(mask: Array, firsts: Array) -> Array:
    """How many are set in each run."""
    found: Array = np.diff(np.concatenate([[0], np.cumsum(mask)])[firsts])
    return found


# -- the plan ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FilePlan:
    """The data files that manifests leave of a table, as other planners give them."""

    entries: Entries
    whole: Array
    """Per file, whether every row matches that is not deleted."""
    deletes: DeleteMatches | None
    """Which delete files apply; None for a table without any."""
    filter_stats: FilterStats
    notes: tuple[Note, ...] = ()

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def paths(self) -> list[str]:
        """The files' locations."""
        found: list[str] = self.entries.paths.to_pylist()
        return found

    @property
    def rows(self) -> int:
        """Rows of the files, deleted ones included."""
        return int(self.entries.rows.sum())

    @cached_property
    def table(self) -> pa.Table:
        """A row per file: path, bytes, rows, spec, sequence number, whether all rows match, delete files."""
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


def _pairs(links: Links) -> tuple[Array, Array]:
    return links.pairs(np.arange(len(links.counts)))
