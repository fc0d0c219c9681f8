"""Views of compaction plans and reports.

2 groups of 1,000 files, 512.0 MB → about 4 files
db.events at snapshot 42: 1,000 of 1,204 files are candidates

group  partition          files      size  new files  why
    0  ts_day=2024-01-01    600  310.2 MB          2  small 600
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from skipstone.compact.expire import ExpireReport
from skipstone.compact.manifests import ManifestsReport
from skipstone.compact.orphans import OrphansReport
from skipstone.compact.plan import CompactionPlan, FileGroup, PlanListing
from skipstone.compact.run import CompactionReport
from skipstone.report.node import Facts, Items, ReportNode, Text, fields, nbytes, number, table, text
from skipstone.report.units import count, duration, phrase, plural, size, some

_MOST_GROUPS, _MOST_SKIPPED = 20, 10


def plan_tree(plan: CompactionPlan) -> ReportNode:
    """The groups to rewrite and why, those that are skipped, and how partitions were judged."""
    head = "nothing to compact"
    if plan.groups:
        what = f"{plural(plan.files, 'file')} in {plural(len(plan.groups), 'group')}"
        head = f"{what} become about {plural(plan.expected_files, 'file')}"
    matched = f"{count(plan.files_matched)} of {plural(plan.files_considered, 'file')}"
    deletes = len({path for group in plan.groups for path in group.delete_files})
    stats = plan.filter_stats
    return ReportNode(
        body=(
            Text(head, "bold"),
            Facts(
                (
                    ("table", f"{plan.table}, snapshot {plan.snapshot}"),
                    ("filter", plan.where),
                    ("matched", f"{matched} in partitions that can match" if plan.where else ""),
                    ("strategy", _strategy(plan)),
                    ("work", _work(plan)),
                    ("deletes", some(deletes, "delete file", " applied")),
                    ("not judged", _not_judged(plan)),
                    (
                        "unfiltered",
                        some(stats.unconstrained_specs, "spec", " without a column of the filter"),
                    ),
                    ("hash", plan.hash),
                ),
                code=("filter",),
            ),
            table(
                plan.groups,
                number("group", lambda group: str(group.id)),
                *fields(text, "partition=name"),
                *fields(number, "files=count"),
                *fields(nbytes, "size=bytes"),
                number("new files", lambda group: group.expected_files),
                text("why", _reasons, least=24),
                most=(_MOST_GROUPS, "group"),
            ),
            table(
                plan.skipped,
                *fields(text, "skipped partition=name"),
                *fields(number, "files"),
                *fields(nbytes, "size=bytes"),
                text("why", lambda one: one.reason, least=24),
                most=(_MOST_SKIPPED, "group"),
            ),
        )
    )


def files_tree(listing: PlanListing) -> ReportNode:
    """The plan, and below it a line per file."""
    plan = listing.plan
    tree = plan_tree(plan)
    root = _common_folder([path for group in plan.groups for path in group.paths.to_pylist()])
    files = table(
        [(group, file) for group in plan.groups for file in group.files],
        number("group", lambda pair: str(pair[0].id)),
        text("file", lambda pair: pair[1].path[len(root) :], least=24),
        nbytes("size", lambda pair: pair[1].bytes),
        number("rows", lambda pair: pair[1].rows, rank=2),
        number("deletes", lambda pair: pair[1].deletes, rank=1),
        text("why", lambda pair: ", ".join(pair[1].reasons), least=24),
        notes=(f"files below {root}",) if root else (),
    )
    return dataclasses.replace(tree, body=(*tree.body, files))


def _common_folder(paths: Sequence[str]) -> str:
    """The folder of all paths, with a slash at its end."""
    first, last = min(paths, default=""), max(paths, default="")
    same = next((at for at, pair in enumerate(zip(first, last, strict=False)) if len(set(pair)) > 1), None)
    return first[: first.rfind("/", 0, same) + 1]


def report_tree(report: CompactionReport) -> ReportNode:
    """Files and rows rewritten, the time it took, and groups that failed."""
    head = "nothing was compacted"
    if report.groups:
        old = f"{plural(report.files_removed, 'file')}, {size(report.bytes_removed)}"
        head = f"{old} → {plural(report.files_added, 'file')}, {size(report.bytes_added)}"
    spent = report.seconds
    speed = f" ({size(int(report.bytes_removed / spent.rewrite))}/s)" if spent.rewrite else ""
    times = (
        f"rewritten in {duration(spent.rewrite)}{speed}",
        f"committed in {duration(spent.commit)}",
        f"indexed in {duration(spent.index)}" if spent.index > 0.01 else "",
    )
    return ReportNode(
        body=(
            Text(head, "bold"),
            Text(f"{report.table}: {phrase(*times, by=', ')}" if report.groups else report.table, "dim"),
            Text(str(report.engine or ""), "dim"),
            Facts(
                (
                    ("groups", count(report.groups) if report.groups else ""),
                    ("rows", phrase(count(report.rows), some(report.rows_removed, "deleted row", " removed")))
                    if report.groups
                    else ("rows", ""),
                    ("deletes", some(report.delete_files_removed, "delete file", " dropped")),
                    ("snapshots", ", ".join(map(str, report.snapshots))),
                    ("conflicts", some(report.rewritten_again, "group", " rewritten again")),
                )
            ),
            Text(f"index is not up to date: {report.index_problem}" if report.index_problem else "", "bold"),
            Items("groups that failed", [f"group {one.group}: {one.error}" for one in report.failures]),
        )
    )


def _strategy(plan: CompactionPlan) -> str:
    options = plan.options
    by = f" by {', '.join(options.sort_by)}" if options.sort_by else ""
    moved = "" if options.target_spec_id is None else f", to spec {options.target_spec_id}"
    return f"{options.strategy}{by}{moved}, target {size(options.target_file_size_bytes)}"


def _work(plan: CompactionPlan) -> str:
    if not plan.groups:
        return ""
    rows = sum(group.rows for group in plan.groups)
    return f"reads {size(plan.bytes_to_read)} and writes about as much, {plural(rows, 'row')}"


def _not_judged(plan: CompactionPlan) -> str:
    stats = plan.filter_stats
    if not stats.fail_open_partitions:
        return ""
    files = plural(stats.fail_open_files, "candidate")
    return f"{plural(stats.fail_open_partitions, 'partition')} included with {files}"


def _reasons(group: FileGroup) -> str:
    return ", ".join(f"{name} {count(files)}" for name, files in group.reasons.items())


def expire_tree(report: ExpireReport) -> ReportNode:
    """Snapshots that expired, and their files."""
    gone = plural(len(report.snapshots), "snapshot")
    head = f"{_would(report.dry_run, 'expire')} {gone}, {plural(report.remaining, 'snapshot')} left"
    kinds = [
        (one.kind, count(one.files) + (f", {size(one.bytes)}" * bool(one.bytes))) for one in report.counts
    ]
    more = [
        ("removed", ", ".join(report.refs)),
        ("outside", some(len(report.outside), "file", " not deleted")),
    ]
    return _upkeep(report, head, ("files", _freed(report.files, report.bytes)), *kinds, *more)


def orphans_tree(report: OrphansReport) -> ReportNode:
    """Files that nothing refers to."""
    head = f"{_would(report.dry_run, 'delete')} {_freed(report.files, report.bytes) or 'no files'}"
    known = f"{count(report.referenced)} of {plural(report.listed, 'file')}"
    young = some(report.recent, "file", f" not older than {report.older_than:%Y-%m-%d %H:%M} UTC")
    other = some(len(report.mismatched), "file", " with another scheme or authority")
    theirs = some(report.others, "file", " of other tables of the catalog")
    facts = {
        "location": report.location,
        "referenced": known,
        "recent": young,
        "mismatched": other,
        "others": theirs,
        "unchecked": "; ".join(report.unchecked[:_MOST_SKIPPED]),
    }
    return _upkeep(report, head, *facts.items())


def manifests_tree(report: ManifestsReport) -> ReportNode:
    """Manifests before and after."""
    old = f"{plural(report.replaced, 'manifest')}, {size(report.bytes_replaced)}"
    new = f"{plural(report.created, 'manifest')}, {size(report.bytes_created)}"
    head = f"{_would(report.dry_run, 'rewrite')} {old} → {new}" if report.replaced else "nothing to rewrite"
    totals = ("manifests", f"{count(report.manifests_before)} → {count(report.manifests_after)}")
    old_format = ("unsupported", some(report.unsupported, "manifest", " of format version 1"))
    problem = ("index", report.index_problem)
    return _upkeep(report, head, totals, ("entries", count(report.entries)), old_format, problem)


def _upkeep(
    report: ExpireReport | OrphansReport | ManifestsReport, head: str, *facts: tuple[str, str]
) -> ReportNode:
    failures = Items("errors", getattr(report, "failures", ())[:_MOST_SKIPPED])
    files = Items("files", getattr(report, "files", ())[:_MOST_SKIPPED] if report.dry_run else ())
    return ReportNode(body=(Text(head, "bold"), Text(report.table, "dim"), Facts(facts), files, failures))


def _would(dry_run: bool, verb: str) -> str:
    return f"would {verb}" if dry_run else {"rewrite": "rewrote"}.get(verb, f"{verb.removesuffix('e')}ed")


def _freed(files: Sequence[str], nbytes: int) -> str:
    return some(len(files), "file", f", {size(nbytes)}")
