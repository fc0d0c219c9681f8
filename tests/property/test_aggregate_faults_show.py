"""The comparison with DuckDB can fail: faults in every part that is trusted are noticed."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skipstone.aggregate import aggregation, metadata, units
from skipstone.aggregate.members import Cover
from skipstone.aggregate.statistics import MemberPages
from tests.property.test_aggregate_soundness import PER_LAKE, run_lake

MOST = 18
"""Lakes to try. The first shows the fault, as long as random lakes are made as they are."""


def full_cover(patch: pytest.MonkeyPatch) -> None:
    """Units with members are taken for units of members only."""
    right = metadata.cover_units

    def wrong(*given: Any) -> Cover:
        cover = right(*given)
        return Cover(cover.inside, np.zeros_like(cover.outside))

    patch.setattr(metadata, "cover_units", wrong)


def wrong_blocks(patch: pytest.MonkeyPatch) -> None:
    """Metadata counts one value too many."""
    right = metadata.block_aggregates

    def wrong(*given: Any) -> Any:
        blocks = right(*given)
        return replace(blocks, count=blocks.count + 1)

    patch.setattr(metadata, "block_aggregates", wrong)


def wrong_ends(patch: pytest.MonkeyPatch) -> None:
    """Metadata takes the largest value for the smallest."""
    right = metadata.block_aggregates

    def wrong(*given: Any) -> Any:
        blocks = right(*given)
        return replace(blocks, lower=blocks.upper)

    patch.setattr(metadata, "block_aggregates", wrong)


def proven_rows(patch: pytest.MonkeyPatch) -> None:
    """Rows that may match are taken for rows that do."""
    right = units.shares_of
    patch.setattr(
        units,
        "shares_of",
        lambda *given: [replace(share, proven=share.rows) for share in right(*given)],
    )


def dropped_pages(patch: pytest.MonkeyPatch) -> None:
    """Pages of members only are passed over."""
    right = metadata.member_pages

    def wrong(*given: Any) -> MemberPages:
        pages = right(*given)
        return MemberPages(pages.outside | pages.inside, pages.inside)

    patch.setattr(metadata, "member_pages", wrong)


def lost_results(patch: pytest.MonkeyPatch) -> None:
    """A piece that was read is forgotten."""
    right = aggregation.read_locally
    patch.setattr(aggregation, "read_locally", lambda *given: islice(right(*given), 1, None))


FIRST = {
    full_cover: 12,
    wrong_blocks: 18,
    wrong_ends: 12,
    proven_rows: 12,
    dropped_pages: 23,
    lost_results: 12,
}
"""Each fault, and the first lake to try."""


@pytest.mark.parametrize("fault", FIRST, ids=lambda fault: fault.__name__)
def test_a_fault_is_noticed(
    fault: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)

    def ask() -> None:
        for number in range(FIRST[fault], FIRST[fault] + MOST):
            run_lake(f"agg:{number}", tmp_path, range(PER_LAKE), Counter())
            shutil.rmtree(tmp_path / f"agg-{number}")

    with pytest.raises(AssertionError, match=r"instead of|groups|differ|Error"):
        ask()
