"""Which snapshots expire: the rules of Iceberg's own implementation, one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from skipstone.compact.expire import ExpiryRule, Retention
from skipstone.compact.removal import Age, check_collectable, moment
from skipstone.errors import UsageError

DAY = 86_400_000
NOW = round(datetime.now().timestamp() * 1000)


def metadata(
    *snapshots: tuple[int, int | None, float],
    refs: dict[str, dict[str, Any]] | None = None,
    properties: dict[str, str] | None = None,
) -> TableMetadata:
    """A table with these snapshots: id, parent, and age in days; by default the last is the current one."""
    made = [
        {
            "snapshot-id": id,
            **({} if parent is None else {"parent-snapshot-id": parent}),
            "sequence-number": number,
            "timestamp-ms": NOW - int(age * DAY),
            "manifest-list": f"s3://b/t/metadata/snap-{id}.avro",
            "summary": {"operation": "append"},
            "schema-id": 0,
        }
        for number, (id, parent, age) in enumerate(snapshots, 1)
    ]
    every = {"main": {"snapshot-id": snapshots[-1][0], "type": "branch"}, **(refs or {})}
    document = {
        "format-version": 2,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": "s3://b/t",
        "last-sequence-number": len(made),
        "last-updated-ms": NOW,
        "last-column-id": 1,
        "current-schema-id": 0,
        "schemas": [
            {
                "type": "struct",
                "schema-id": 0,
                "fields": [{"id": 1, "name": "a", "required": False, "type": "long"}],
            }
        ],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": properties or {},
        "current-snapshot-id": every["main"]["snapshot-id"],
        "refs": every,
        "snapshots": made,
        "snapshot-log": [],
        "metadata-log": [],
    }
    return TableMetadataUtil.parse_obj(document)


def expired(
    table: TableMetadata,
    older_than: Age | None = None,
    retain_last: int | None = None,
    ids: tuple[int, ...] = (),
    *,
    by_age: bool = True,
) -> tuple[set[int], list[str]]:
    gone, refs = ExpiryRule("t", older_than, retain_last, ids, by_age)(table)
    return set(gone), refs


LINE = ((1, None, 9), (2, 1, 8), (3, 2, 6), (4, 3, 1), (5, 4, 0.5))


def test_defaults_are_five_days_and_one_snapshot() -> None:
    assert expired(metadata(*LINE)) == ({1, 2, 3}, [])
    assert expired(metadata((1, None, 9), (2, 1, 8))) == ({1}, [])


def test_arguments_replace_the_properties() -> None:
    properties = {
        "history.expire.max-snapshot-age-ms": str(7 * DAY),
        "history.expire.min-snapshots-to-keep": "4",
    }
    assert expired(metadata(*LINE, properties=properties)) == ({1}, [])
    assert expired(metadata(*LINE, properties=properties), retain_last=1) == ({1, 2}, [])
    assert expired(metadata(*LINE, properties=properties), timedelta(0), 2) == ({1, 2, 3}, [])
    assert expired(metadata(*LINE), timedelta(days=30)) == (set(), [])


def test_a_snapshot_exactly_as_old_stays() -> None:
    limit = datetime.fromtimestamp((NOW - 6 * DAY) / 1000, UTC)
    assert expired(metadata(*LINE), limit) == ({1, 2}, [])
    assert expired(metadata(*LINE), limit + timedelta(milliseconds=1)) == ({1, 2, 3}, [])


def test_the_line_of_a_branch_ends_at_the_first_old_snapshot() -> None:
    # A clock that went backwards: 2 looks younger than 3, but it is behind it.
    table = metadata((1, None, 9), (2, 1, 1), (3, 2, 8), (4, 3, 0))
    assert expired(table) == ({1, 2, 3}, [])


def test_branches_have_rules_of_their_own() -> None:
    branch = {"snapshot-id": 4, "type": "branch"}
    rows = (*LINE[:3], (4, 3, 6), (5, 3, 0))
    assert expired(metadata(*rows, refs={"b": branch})) == ({1, 2, 3}, [])
    keeps = {**branch, "min-snapshots-to-keep": 3}
    assert expired(metadata(*rows, refs={"b": keeps})) == ({1}, [])
    assert expired(metadata(*rows, refs={"b": {**branch, "max-snapshot-age-ms": 10 * DAY}})) == (set(), [])
    # The limit of a branch overrules an argument.
    apart = (*LINE[:3], (4, 3, 6), (5, None, 0))
    young = {**branch, "max-snapshot-age-ms": DAY}
    assert expired(metadata(*apart, refs={"b": branch}), timedelta(days=7)) == ({1, 2}, [])
    assert expired(metadata(*apart, refs={"b": young}), timedelta(days=7)) == ({1, 2, 3}, [])


def test_tags_keep_one_snapshot() -> None:
    tag = {"snapshot-id": 2, "type": "tag"}
    assert expired(metadata(*LINE, refs={"v1": tag})) == ({1, 3}, [])


def test_references_expire_by_age_but_not_the_main_branch() -> None:
    old = {"snapshot-id": 2, "type": "tag", "max-ref-age-ms": 7 * DAY}
    table = metadata(*LINE, refs={"v1": old, "v2": {**old, "max-ref-age-ms": 9 * DAY}})
    assert expired(table) == ({1, 3}, ["v1"])
    assert expired(metadata(*LINE, refs={"v1": old})) == ({1, 2, 3}, ["v1"])
    properties = {"history.expire.max-ref-age-ms": str(DAY)}
    table = metadata((1, None, 9), (2, 1, 8), refs={"b": {"snapshot-id": 1, "type": "branch"}})
    assert expired(table) == (set(), [])
    table = metadata(
        (1, None, 9),
        (2, 1, 8),
        refs={"b": {"snapshot-id": 1, "type": "branch"}},
        properties=properties,
    )
    assert expired(table) == ({1}, ["b"])


def test_unreferenced_snapshots_stay_while_they_are_young() -> None:
    # 2 and 3 were rolled back.
    table = metadata((1, None, 9), (2, 1, 7), (3, 2, 1), (4, 1, 0))
    assert expired(table) == ({1, 2}, [])
    assert expired(table, timedelta(hours=1)) == ({1, 2, 3}, [])
    # As many as a branch keeps, but these are in no branch.
    assert expired(table, timedelta(hours=1), 10) == ({2, 3}, [])


def test_named_snapshots_expire_whatever_their_age() -> None:
    assert expired(metadata(*LINE), ids=(4,), by_age=False) == ({4}, [])
    assert expired(metadata(*LINE), timedelta(days=7), ids=(4,)) == ({1, 2, 4}, [])
    with pytest.raises(UsageError, match=r"t: snapshot 5 is referenced by main \(remove the branch"):
        expired(metadata(*LINE), ids=(5,))
    tag = {"snapshot-id": 2, "type": "tag", "max-ref-age-ms": DAY}
    table = metadata(*LINE, refs={"v1": tag})
    with pytest.raises(UsageError, match="referenced by v1"):
        expired(table, ids=(2,), by_age=False)
    # The tag itself expires.
    assert expired(table, ids=(2,)) == ({1, 2, 3}, ["v1"])


def test_the_current_snapshot_stays_without_references() -> None:
    table = metadata(*LINE).model_copy(update={"refs": {}})
    kept = Retention.of(table, timedelta(0), 1).retained(table, [])
    assert kept == {5}


@pytest.mark.parametrize("value", [0, -1, True, "3"])
def test_branches_keep_at_least_one(value: Any) -> None:
    with pytest.raises(UsageError, match="retain_last must be at least 1"):
        expired(metadata(*LINE), retain_last=value)


def test_properties_are_checked() -> None:
    table = metadata(*LINE, properties={"history.expire.max-snapshot-age-ms": "5 days"})
    with pytest.raises(
        UsageError, match="max-snapshot-age-ms must be an integer of at least 0, got '5 days'"
    ):
        expired(table)


@pytest.mark.parametrize(("value", "refused"), [("false", True), (" FALSE", True), ("true", False)])
def test_files_of_others_are_not_garbage(value: str, refused: bool) -> None:
    table = metadata(*LINE, properties={"gc.enabled": value})
    if not refused:
        check_collectable(table, "t")
        return
    with pytest.raises(UsageError, match=r"t: files of the table must not be deleted: gc\.enabled is false"):
        check_collectable(table, "t")


@pytest.mark.parametrize(
    ("age", "ago"),
    [
        ("3d", timedelta(days=3)),
        (" 1.5 H ", timedelta(minutes=90)),
        ("2w", timedelta(weeks=2)),
        ("30s", timedelta(seconds=30)),
        (timedelta(days=1), timedelta(days=1)),
    ],
)
def test_ages(age: Age, ago: timedelta) -> None:
    before = datetime.now(UTC)
    assert before <= moment(age) + ago <= datetime.now(UTC)


def test_times() -> None:
    assert moment("2026-01-31T12:00:00+01:00") == datetime(2026, 1, 31, 11, tzinfo=UTC)
    assert moment("2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)
    assert moment(datetime(2026, 1, 31)) == datetime(2026, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize("age", ["3", "yesterday", "-1d", "1e9w", "999999999999w", timedelta(-1), 5, None])
def test_what_is_neither(age: object) -> None:
    with pytest.raises(UsageError, match="older_than is neither a time nor an age"):
        moment(age)
