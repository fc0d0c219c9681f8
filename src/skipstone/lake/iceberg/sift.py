"""What manifests leave of a table's files: manifests first, then partitions, then files by their metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from pyiceberg.partitioning import PartitionSpec

from skipstone.evidence import Array, ColumnFacts, Evidence
from skipstone.ir.nodes import ColumnRef, Node
from skipstone.judge import Verdict, judge
from skipstone.lake.base import Path, Sifted
from skipstone.lake.iceberg.entries import Entries
from skipstone.lake.iceberg.inventory import Inventory
from skipstone.lake.iceberg.partition_filter import PartitionFilter
from skipstone.prune.ledger import Blame, Ledger
from skipstone.trace import Cause

Facts = Callable[[Entries, int], ColumnFacts]


@dataclass(frozen=True, slots=True, eq=False)
class Sieve:
    """The data files of a snapshot, and what it takes to judge them."""

    inventory: Inventory
    specs: Mapping[int, PartitionSpec]
    columns: Mapping[int, ColumnRef]
    facts: Facts
    ledger: Ledger
    strict: bool

    def sift(self, node: Node | None) -> Sifted:
        """The files that may hold a match, and those of which every row does."""
        if node is None:
            return self._everything()
        chosen = PartitionFilter(node, self.specs, self.columns, strict=self.strict)
        entries, numbers = self.inventory.joined(self._manifests(chosen))
        partitions = chosen.judge(entries.keys)
        drops = Blame.all_by(partitions.judgement, Cause.PARTITION).drops
        by_key = np.bincount(entries.partitions, entries.rows, len(entries.keys)).astype(np.int64)
        self.ledger.level("partitions", partitions.verdicts, by_key, drops)
        left = np.flatnonzero(partitions.kept[entries.partitions] & (entries.rows > 0))
        verdicts = self._files(node, chosen, entries, left)
        kept = left[verdicts != Verdict.NONE]
        whole = left[verdicts == Verdict.ALL]
        candidates = (
            [entries.keys[code] for code in entries.partitions[kept].tolist()]
            if (partitions.fail_open.any())
            else []
        )
        for warning in chosen.warnings:
            place = "partitions" if warning.spec_id is None else f"partition spec {warning.spec_id}"
            times = f" ({warning.count} times)" if warning.count > 1 else ""
            self.ledger.notes.add(place, f"kept without a judgement: {warning.message}{times}")
        return Sifted(
            np.sort(numbers[kept]),
            True,
            dict(zip(numbers[whole].tolist(), entries.rows[whole].tolist(), strict=True)),
            int(entries.rows.sum() - entries.rows[kept].sum()),
            chosen.stats(candidates),
        )

    def _everything(self) -> Sifted:
        entries, numbers = self.inventory.everything
        some = np.flatnonzero(entries.rows > 0)
        verdicts = np.full(len(some), Verdict.ALL, dtype=np.int8)
        self.ledger.level("files", verdicts, entries.rows[some])
        rows = dict(zip(numbers[some].tolist(), entries.rows[some].tolist(), strict=True))
        return Sifted(numbers[some], True, rows)

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
        asked = {ref.path for ref in node.refs()}
        by_key, codes = chosen.facts(some.keys, asked=True), some.partitions
        columns: dict[Path, ColumnFacts] = {}
        for field_id, ref in self.columns.items():
            if ref.path not in asked:
                continue
            mine = self.facts(some, field_id)
            given = by_key.get(ref.path)
            columns[ref.path] = mine if given is None else mine.narrowed(given.take(codes))
        evidence = Evidence(some.rows, columns)
        cleared = {leaf: mask[codes] for leaf, mask in chosen.cleared(some.keys).items()}
        judgement = judge(node, evidence, cleared)
        verdicts = judgement.verdicts()
        self.ledger.level("files", verdicts, some.rows, lambda: Blame.of(judgement, evidence).drops())
        return verdicts
