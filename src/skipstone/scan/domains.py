"""The call of Hudi's RFC 58: which files, and which of their row groups, may hold rows of a column domain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from skipstone.core.domain import ColumnDomain, ColumnHandle
from skipstone.errors import UnknownColumnError, UsageError
from skipstone.lake.snapshot import FileEntry
from skipstone.predicate import predicate
from skipstone.scan.options import ScanOptions
from skipstone.scan.planner import Question, keep_row_groups
from skipstone.scan.projection import Projection

if TYPE_CHECKING:
    from skipstone.scan.lake import Lake


def files_to_query(
    lake: Lake,
    columns: Iterable[str | ColumnHandle] | None,
    column_domain: ColumnDomain,
    options: ScanOptions,
) -> list[FileEntry]:
    """The files of ``lake`` that may hold rows whose named columns lie in their domains."""
    if not isinstance(column_domain, ColumnDomain):
        raise UsageError(f"column_domain is a {type(column_domain).__name__}", hint="give a sk.ColumnDomain")
    asked = _restricted(lake, columns, column_domain)
    where = None if asked.is_all else predicate(asked)
    # Pages are the reader's business: row groups are what this call answers with.
    options = replace(options, page_index=False)
    kept = keep_row_groups(lake, Question(where, Projection.of(lake.schema, []), None, (), options))
    entries = lake.files_of(np.fromiter(kept, dtype=np.int64, count=len(kept)))
    return [
        replace(entry, rows=rows, row_groups=tuple(groups))
        for entry, (rows, groups) in zip(entries, kept.values(), strict=True)
    ]


def _restricted(
    lake: Lake, columns: Iterable[str | ColumnHandle] | None, asked: ColumnDomain
) -> ColumnDomain:
    """The domain of the named columns; the others are not looked at."""
    if columns is None or asked.is_none:
        return asked
    if isinstance(columns, str):
        raise UsageError(f"columns={columns!r}", hint="give a list of names or sk.ColumnHandle objects")
    names = {str(column) for column in columns}
    for name in sorted(names):
        if name.partition(".")[0] not in lake.schema.names and name not in lake.schema.names:
            raise UnknownColumnError(
                f"there is no column {name!r}",
                path=lake.uri,
                column=name,
                hint=f"columns are {', '.join(lake.schema.names)}",
            )
    return ColumnDomain(tuple((handle, domain) for handle, domain in asked.items if str(handle) in names))
