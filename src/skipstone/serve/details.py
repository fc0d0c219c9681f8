"""What the page shows of a lake: bounds of columns, files of a plan, reasons, snapshots, compaction.

Every answer is bounded, whatever the size of the lake: files are merged into bands, and lists have pages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from skipstone.core.domain.keys import format_key
from skipstone.core.evidence import Array, ColumnFacts, hull
from skipstone.core.ir.bind import Binder
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.plain import type_name
from skipstone.index.advise.advisor import leaves
from skipstone.index.advise.sample import spread
from skipstone.index.container import BadIndex
from skipstone.prune.clustering import clustering, positions, recorded
from skipstone.prune.survey import Survey
from skipstone.report.json import to_json
from skipstone.report.lines import shorten
from skipstone.scan.lake import Lake
from skipstone.scan.table import Table
from skipstone.scan.why import explain_why
from skipstone.serve.access import Limits, Refusal, bad_request
from skipstone.serve.questions import SCAN, check, condition, scan_of

if TYPE_CHECKING:
    from skipstone.compact.plan import CompactionPlan

_COLUMNS, _FOOTERS, _LONGEST = 64, 2_000, 80
_BANDS, _CELLS = 160, 120
_PAGE, _MOST_PAGE, _RANGES = 100, 500, 16
_STEPS, _SNAPSHOTS, _GROUPS = 200, 500, 200
_LARGEST = 2**53

_LAYOUT: Final = {"columns": list, "snapshot": int | str}
_SPANS: Final = {"column": str, **SCAN}
_FILES: Final = {"show": str, "match": str, "start": int, "count": int}
_WHY: Final = {"file": str, "row_group": int, "row": int}
_SIZES: Final = ("min_input_files", "target_file_size_bytes", "delete_file_threshold")
_COMPACTION: Final = {
    **dict.fromkeys(("where", "dialect", "tz", "strategy"), str),
    "sort_by": list,
    **dict.fromkeys(_SIZES, int),
    "rewrite_all": bool,
}


# -- layout --------------------------------------------------------------------------------------


def layout(lake: Lake, document: Mapping[str, Any], limits: Limits) -> dict[str, Any]:  # noqa: ARG001
    """How well the bounds of files tell values apart, column by column."""
    check(document, _LAYOUT)
    lake = _at(lake, document)
    refs = leaves(lake.query_schema)
    if "columns" in document:
        refs = [_column(lake, name) for name in document["columns"]]
    bounds = _FileBounds.of(lake, refs[:_COLUMNS])
    names = [field.name for field in lake.query_schema]
    ordered = {ref.path[0] for ref in refs}
    return {
        **bounds.head(),
        "columns": [_overview(ref, bounds) for ref in refs[:_COLUMNS]],
        "of_columns": len(refs),
        "unordered": [] if "columns" in document else [name for name in names if name not in ordered],
    }


def spans(lake: Lake, document: Mapping[str, Any], limits: Limits) -> dict[str, Any]:  # noqa: ARG001
    """Where the values of each file lie in the range of a column, and which files a scan keeps."""
    check(document, _SPANS)
    if "column" not in document:
        raise bad_request("body has no column")
    scan = {name: value for name, value in document.items() if name != "column"}
    lake = _at(lake, document)
    ref = _column(lake, document["column"])
    kept = None
    if "where" in scan or "domain" in scan:
        scan.pop("snapshot", None)
        kept = np.zeros(len(lake.pinned.entries), dtype=bool)
        kept[[task.number for task in scan_of(lake, scan).plan().tasks]] = True
    bounds = _FileBounds.of(lake, [ref])
    return {**bounds.head(), **_overview(ref, bounds), **_drawing(lake, ref, bounds, kept)}


@dataclass(frozen=True, slots=True, eq=False)
class _FileBounds:
    """Facts of columns per file: from the index, a table's manifests, or the footers of some files."""

    version: str
    source: str
    of_files: int
    files: Array
    """Numbers of the files in the listing."""
    rows: Array
    facts: Mapping[tuple[str, ...], ColumnFacts]

    @classmethod
    def of(cls, lake: Lake, refs: Sequence[ColumnRef]) -> _FileBounds:
        total = len(lake.pinned.entries)
        every = np.arange(total)
        while True:
            coverage = lake.index.coverage
            missing = every if coverage is None else np.flatnonzero(coverage.owner < 0)
            try:
                if isinstance(lake, Table) and len(missing):
                    entries = lake.inventory.take(every)
                    ids = {ref.path: _field_id(lake, ref) for ref in refs}
                    found = {path: lake.file_facts(entries, number) for path, number in ids.items()}
                    return cls(lake.version, "manifests", total, every, entries.rows, found)
                opened = spread(missing, _FOOTERS)
                if coverage is None:
                    survey, files = lake.survey(opened), opened
                else:
                    indexed = np.flatnonzero(coverage.owner >= 0)
                    survey, files = lake.surveyed(coverage, coverage.rows_of(indexed), opened)
                starts = survey.firsts[:-1]
                order = np.argsort(files)
                found = {ref.path: hull(survey.facts(ref), starts).take(order) for ref in refs}
                source = "footers" if len(opened) else "index"
                return cls(lake.version, source, total, files[order], survey.totals[order], found)
            except BadIndex as error:
                lake.index.distrust(error)

    def head(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "source": self.source,
            "files": self.of_files,
            "measured": len(self.files),
            "rows": int(self.rows.sum()),
        }


def _overview(ref: ColumnRef, bounds: _FileBounds) -> dict[str, Any]:
    facts = bounds.facts[ref.path]
    measured = clustering(facts, bounds.rows)
    low, high = positions(facts)
    least = None if np.isnan(low).all() else _text(facts, int(np.nanargmin(low)))[0]
    most = None if least is None else _text(facts, int(np.nanargmax(high)))[1]
    return {
        "name": ref.name,
        "type": str(ref.type),
        "layout": measured.layout.value,
        "depth": round(measured.depth, 3),
        "profile": [round(share, 4) for share in measured.profile],
        "lower": least,
        "upper": most,
        "unbounded": int(np.isnan(low[facts.may_value]).sum()),
        "only_null": int((~facts.may_value).sum()),
    }


def _drawing(lake: Lake, ref: ColumnRef, bounds: _FileBounds, kept: Array | None) -> dict[str, Any]:
    """Files by their lower bounds, merged into bands, and the number of files at each part of the range."""
    facts = bounds.facts[ref.path]
    low, high = positions(facts)
    order = np.lexsort((high, low))
    order = order[~np.isnan(low[order])]
    low, high = low[order], high[order]
    places = np.minimum(low * _CELLS, _CELLS - 1).astype(np.int64)
    stops = np.minimum(high * _CELLS, _CELLS - 1).astype(np.int64)
    # The most files that overlap anywhere in a cell do so at its left edge, or where one of them begins.
    tried = np.concatenate([np.arange(_CELLS) / _CELLS, low])
    begun = np.searchsorted(low, tried, side="right")
    overlapping = begun - np.searchsorted(np.sort(high), tried, side="left")
    depth = np.zeros(_CELLS, dtype=np.int64)
    np.maximum.at(depth, np.concatenate([np.arange(_CELLS), places]), overlapping)
    owners = np.arange(len(order)) * min(_BANDS, len(order)) // max(len(order), 1)
    count = int(owners[-1]) + 1 if len(order) else 0
    covered = np.zeros((count, _CELLS + 1), dtype=np.int64)
    np.add.at(covered, (owners, places), 1)
    np.add.at(covered, (owners, stops + 1), -1)
    covered = np.cumsum(covered, axis=1)[:, :_CELLS]
    firsts = np.searchsorted(owners, np.arange(count + 1))
    entries = lake.pinned.entries
    bands = []
    # A loop over bands, of which there are few.
    for band, (start, stop) in enumerate(zip(firsts[:-1].tolist(), firsts[1:].tolist(), strict=True)):
        last = start + int(np.argmax(high[start:stop]))
        drawn = {
            "file": entries[int(bounds.files[order[start]])].key,
            "files": stop - start,
            "low": round(float(low[start]), 5),
            "high": round(float(high[last]), 5),
            "lower": _text(facts, int(order[start]))[0],
            "upper": _text(facts, int(order[last]))[1],
        }
        if stop - start > 1:
            shares = np.ceil(covered[band] * 9 / (stop - start)).astype(np.int64)
            drawn["cells"] = "".join(map(str, shares.tolist()))
        if kept is not None:
            drawn["kept"] = int(kept[bounds.files[order[start:stop]]].sum())
        bands.append(drawn)
    return {"overlap": depth.tolist(), "bands": bands}


def _text(facts: ColumnFacts, unit: int) -> tuple[str | None, str | None]:
    """The bounds of a file as texts; None where it has no such bound."""
    if not recorded(facts)[unit]:
        return None, None
    ends = facts.lower[unit], facts.upper[unit]
    keys = [end.as_py() if isinstance(end, pa.Scalar) else end.item() for end in ends]
    low, high = (shorten(format_key(facts.type, key), _LONGEST) for key in keys)
    return low, high


def _column(lake: Lake, name: str) -> ColumnRef:
    """The column that a layout lists by this name."""
    found = next((ref for ref in leaves(lake.query_schema) if ref.name == name), None)
    if found is None:
        ref = Binder(lake.query_schema).column(tuple(name.split(".")))
        raise bad_request(f"column {name} has no order: {type_name(ref.type)}")
    return found


def _field_id(table: Table, ref: ColumnRef) -> int:
    return int(table.iceberg_schema.find_field(".".join(ref.path)).field_id)


# -- files and reasons ---------------------------------------------------------------------------


def files(lake: Lake, document: Mapping[str, Any], limits: Limits) -> dict[str, Any]:  # noqa: ARG001
    """A page of the files that a scan keeps or drops, with the rows that it reads of each."""
    check(document, {**_FILES, **SCAN})
    show, match = document.get("show", "all"), document.get("match", "").lower()
    start, count = document.get("start", 0), document.get("count", _PAGE)
    if show not in ("all", "kept", "dropped"):
        raise bad_request("show is not all, kept or dropped")
    if start < 0 or not 0 < count <= _MOST_PAGE:
        raise bad_request(f"start is negative, or count is not between 1 and {_MOST_PAGE}")
    scan = scan_of(lake, {name: value for name, value in document.items() if name not in _FILES})
    made, snapshot = scan.plan(), scan.lake.pinned
    tasks = {task.number: task for task in made.tasks}
    chosen = [
        number
        for number, entry in enumerate(snapshot.entries)
        if (show == "all" or (number in tasks) is (show == "kept")) and match in entry.key.lower()
    ]
    page = chosen[start : start + count]
    listed = []
    chosen_files = snapshot.files_of(np.array(page, dtype=np.int64))
    partitions = _partitions(scan.lake, page) or [dict(file.partition) for file in chosen_files]
    for number, file, partition in zip(page, chosen_files, partitions, strict=True):
        task = tasks.get(number)
        ranges = [] if task is None else task.rows.ranges()
        listed.append(
            {
                "file": snapshot.entries[number].key,
                "bytes": file.size,
                "partition": to_json(partition),
                "kept": task is not None,
                "rows": 0 if task is None else len(task.rows),
                "of_rows": file.rows if task is None else task.rows.total,
                "proven": 0 if task is None else len(task.proven),
                "ranges": [list(one) for one in ranges[:_RANGES]],
                "more_ranges": max(len(ranges) - _RANGES, 0),
            }
        )
    totals = {
        "of_files": len(snapshot.entries),
        "kept": len(tasks),
        "rows": made.rows,
        "matched": len(chosen),
    }
    residual = None if made.residual is None else str(made.residual)
    return {"version": made.version, "residual": residual, **totals, "files": listed}


def _partitions(lake: Lake, files: Sequence[int]) -> list[dict[str, str]] | None:
    """The partition of each file as texts, such as a month instead of its number; None for a directory."""
    if not isinstance(lake, Table):
        return None
    from skipstone.iceberg.partitions.values import partition_texts

    entries = lake.inventory.take(np.array(files, dtype=np.int64))
    texts = [partition_texts(key, lake.pinned.specs, lake.iceberg_schema) for key in entries.keys]
    return [texts[code] for code in entries.partitions.tolist()]


def why(lake: Lake, document: Mapping[str, Any], limits: Limits) -> dict[str, Any]:  # noqa: ARG001
    """Why a scan keeps or drops a file, with the statistics that decide it."""
    check(document, {**_WHY, **SCAN})
    if "file" not in document:
        raise bad_request("body has no file")
    scan = scan_of(lake, {name: value for name, value in document.items() if name not in _WHY})
    plan, snapshot = scan.plan(), scan.lake.pinned
    # Only a file of this snapshot is opened, whatever the caller names.
    number = next((n for n, one in enumerate(snapshot.entries) if one.key == document["file"]), None)
    if number is None:
        raise Refusal(404, "NoSuchFileException", "lake has no such file")
    entry, unit = snapshot.entries[number], (document.get("row_group"), document.get("row"))
    answer = explain_why(plan, entry, *unit)
    if not (answer.kept or answer.ruled_out or plan.limit is not None):
        # The index can have more than the file: bounds of pages, bloom filters.
        survey = _indexed(scan.lake, number)
        answer = answer if survey is None else explain_why(plan, entry, *unit, survey)
    told: dict[str, Any] = to_json(answer)
    steps = told["steps"]
    told |= {"file": document["file"], "steps": steps[:_STEPS], "more_steps": max(len(steps) - _STEPS, 0)}
    return told


def _indexed(lake: Lake, file: int) -> Survey | None:
    """The metadata of a file in the index."""
    coverage = lake.index.coverage
    if coverage is None or coverage.owner[file] < 0:
        return None
    nothing = np.zeros(0, dtype=np.int64)
    return lake.surveyed(coverage, coverage.rows_of(np.array([file])), nothing)[0]


# -- tables --------------------------------------------------------------------------------------


def snapshots(lake: Lake, document: Mapping[str, Any], limits: Limits) -> dict[str, Any]:  # noqa: ARG001
    """The newest snapshots of a table, the current one marked; ids are texts, as JavaScript has no int64."""
    check(document, {})
    from skipstone.inspection.snapshots import list_snapshots

    listed = list_snapshots(_table(lake, "snapshots")).snapshots
    newest: list[dict[str, Any]] = [to_json(one) for one in reversed(listed[-_SNAPSHOTS:])]
    for one in newest:
        del one["summary"]
        one |= {name: None if one[name] is None else str(one[name]) for name in ("id", "parent")}
    return {"of_snapshots": len(listed), "snapshots": newest}


def compaction(lake: Lake, document: Mapping[str, Any], limits: Limits) -> dict[str, Any]:  # noqa: ARG001
    """What a compaction of a table would rewrite, and why; nothing is run."""
    check(document, _COMPACTION)
    if not all(0 < document[name] < _LARGEST for name in _SIZES if name in document):
        raise bad_request(f"{', '.join(_SIZES)} are not between 1 and {_LARGEST:,}")
    table = _table(lake, "compaction")
    made = table.plan_compaction(
        condition(document),
        strategy=document.get("strategy", "binpack"),
        sort_by=document.get("sort_by", ()),
        rewrite_all=document.get("rewrite_all"),
        min_input_files=document.get("min_input_files"),
        target_file_size_bytes=document.get("target_file_size_bytes"),
        delete_file_threshold=document.get("delete_file_threshold"),
        force=True,
    )
    return _dry_run(made)


def _dry_run(made: CompactionPlan) -> dict[str, Any]:
    groups = [
        {
            "id": group.id,
            "name": group.name,
            "files": group.count,
            "bytes": group.bytes,
            "rows": group.rows,
            "expected_files": group.expected_files,
            "delete_files": len(group.delete_files),
            "reasons": group.reasons,
        }
        for group in made.groups[:_GROUPS]
    ]
    skipped = [
        {"name": one.name, "files": one.files, "bytes": one.bytes, "reason": one.reason}
        for one in made.skipped[:_GROUPS]
    ]
    return {
        "snapshot": None if made.snapshot is None else str(made.snapshot),
        "strategy": made.options.strategy,
        "target_file_size_bytes": made.options.target_file_size_bytes,
        "min_input_files": made.options.min_input_files,
        "of_files": made.files_considered,
        "matched": made.files_matched,
        "files": made.files,
        "expected_files": made.expected_files,
        "bytes": made.bytes_to_read,
        "filter_stats": to_json(made.filter_stats),
        "groups": groups,
        "of_groups": len(made.groups),
        "skipped": skipped,
        "of_skipped": len(made.skipped),
    }


def _table(lake: Lake, what: str) -> Table:
    if not isinstance(lake, Table):
        raise bad_request(f"a directory has no {what}; name a table")
    return lake


def _at(lake: Lake, document: Mapping[str, Any]) -> Lake:
    return lake.at(document["snapshot"]) if "snapshot" in document else lake


MEMBERS: Final[Mapping[Callable[..., Any], Mapping[str, Any]]] = {
    layout: _LAYOUT,
    spans: _SPANS,
    files: {**_FILES, **SCAN},
    why: {**_WHY, **SCAN},
    snapshots: {},
    compaction: _COMPACTION,
}
"""The members that each question accepts beside its lake or table."""
