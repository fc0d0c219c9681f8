"""Views of recommended maintenance, and of maintenance that was done.

db.events  1 of 1 task recommended; snapshot 42: 1,204 files, 812.0 MB, 30 delete files
└─ compact  1,200 files too small
      work   rewrites 1,200 files, 612.0 MB, into about 8 files
      saves  2,384 requests per full scan
      alone  skipstone compact db.events
"""

from __future__ import annotations

import shlex

from skipstone.compact.maintenance import FinishedTask, Maintenance, MaintenanceReport, MaintenanceTask
from skipstone.report import tree_of
from skipstone.report.node import Code, Facts, Items, ReportNode, Text
from skipstone.report.units import count, duration, phrase, plural, size, some


def proposal_tree(proposal: Maintenance) -> ReportNode:
    """The tasks, with what each reads, writes and saves, and the commands."""
    worth = len(proposal.recommended)
    head = (
        f"{count(worth)} of {plural(len(proposal.tasks), 'task')} recommended" if worth else "nothing to do"
    )
    about = phrase(
        f"{plural(proposal.files, 'file')}, {size(proposal.bytes)}",
        some(proposal.delete_files, "delete file"),
        by=", ",
    )
    where = proposal.arguments or ("TABLE",)
    apply = ("skipstone", "maintain", *where, *proposal.options, "--apply")
    return ReportNode(
        proposal.table,
        f"{head}; snapshot {proposal.snapshot}: {about}",
        children=tuple(_task(task, where) for task in proposal.tasks),
        tail=(
            Code((shlex.join(apply),) if worth else ()),
            Items("not examined", proposal.problems),
        ),
    )


def _task(task: MaintenanceTask, where: tuple[str, ...]) -> ReportNode:
    verbs = 2 if task.command[0] == "index" else 1
    run = shlex.join(["skipstone", *task.command[:verbs], *where, *task.command[verbs:]])
    worth = "" if task.recommended else "not recommended: "
    facts = Facts((("work", task.work), ("saves", str(task.saves)), ("alone", run)), code=("alone",))
    return ReportNode(task.name, f"{worth}{task.why}", "kept" if task.recommended else "dim", body=(facts,))


def report_tree(report: MaintenanceReport) -> ReportNode:
    """A section for each task that ran."""
    done = sum(task.report is not None for task in report.tasks)
    head = f"{plural(done, 'task')} done" if done else "nothing was done"
    if report.failed:
        head += f", {count(len(report.failed))} failed"
    return ReportNode(
        body=(Text(head, "bold"), Text(report.table, "dim")),
        children=tuple(map(_finished, report.tasks)),
        tree=False,
    )


def _finished(task: FinishedTask) -> ReportNode:
    label = f"{task.name}, {duration(task.seconds)}"
    if task.report is not None:
        return ReportNode(label, body=tree_of(task.report).body)
    return ReportNode(label, body=(Text(task.error or "nothing left to do", "bad" if task.error else ""),))
