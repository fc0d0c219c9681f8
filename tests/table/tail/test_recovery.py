"""What is unflushed, exactly once: floors in snapshots and in the state, and flushes without an answer."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table as IcebergTable

import skipstone as sk
from skipstone.store.local import LocalStore
from skipstone.table.tail.lease import STATE, Intent, Lease, read_state
from skipstone.table.tail.recovery import (
    check_fence,
    flush_properties,
    inspect_log,
    recover,
    snapshot_floor,
    table_floor,
)
from skipstone.table.tail.wal import Kind, Log, mark_of, segment_paths

SCHEMA = pa.schema([pa.field("id", pa.int64())])


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> sk.Catalog:
    return sk.catalog(tmp_path_factory.mktemp("warehouse"))


@pytest.fixture
def table(catalog: sk.Catalog) -> IcebergTable:
    made = catalog.create_table(f"db.t{len(catalog.tables())}", SCHEMA).table
    made.append(rows(0))
    return made


@pytest.fixture
def lease(tmp_path: Path) -> Lease:
    return Lease.acquire(LocalStore(str(tmp_path / "tail")), "3f2b", "db.t")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids}, SCHEMA)


def write(lease: Lease, first: int, count: int, *, segment_bytes: int = 1 << 20) -> Log:
    log = Log(lease.store, lease.state.id, SCHEMA, ["id"], first, sync="off", segment_bytes=segment_bytes)
    for number in range(first, first + count):
        (batch,) = rows(number).to_batches()
        log.append(Kind.ROWS, batch.serialize())
    return log


def flush(table: IcebergTable, lease: Lease, last: int) -> None:
    table.append(rows(*range(last)), snapshot_properties=flush_properties(lease, last))


def numbers(lease: Lease, table: IcebergTable) -> list[int]:
    return [frame.number for frame in recover(lease, table.metadata).frames]


def segments(lease: Lease) -> list[int]:
    return [int(path.stem) for path in segment_paths(Path(lease.store.uri))]


def test_a_new_tail_has_nothing(table: IcebergTable, lease: Lease) -> None:
    found = recover(lease, table.metadata)
    assert (found.frames, found.floor, found.last, found.segments, found.size, found.torn) == (
        (),
        0,
        0,
        0,
        0,
        0,
    )


def test_frames_after_the_floor_are_replayed(table: IcebergTable, lease: Lease) -> None:
    write(lease, 1, 5).abandon()
    assert numbers(lease, table) == [1, 2, 3, 4, 5]
    # Twice: recovery alone flushes nothing.
    assert numbers(lease, table) == [1, 2, 3, 4, 5]
    flush(table, lease, 3)
    assert numbers(lease, table) == [4, 5]
    # Snapshots of other writers and compactions know no floor.
    table.append(rows(77))
    assert numbers(lease, table) == [4, 5]
    assert snapshot_floor(table.metadata, table.metadata.current_snapshot_id, lease.state.id) == 3
    assert snapshot_floor(table.metadata, table.metadata.snapshots[0].snapshot_id, lease.state.id) == 0
    assert read_state(lease.store) == lease.state
    assert lease.state.floor == 3


def test_flushed_segments_are_deleted(table: IcebergTable, lease: Lease) -> None:
    write(lease, 1, 4, segment_bytes=1).abandon()
    flush(table, lease, 2)
    found = recover(lease, table.metadata)
    assert ([frame.number for frame in found.frames], found.floor, found.last) == ([3, 4], 2, 4)
    assert segments(lease) == [3, 4]
    flush(table, lease, 4)
    found = recover(lease, table.metadata)
    assert (found.frames, found.floor, found.last) == ((), 4, 4)
    assert segments(lease) == []
    # The numbers go on.
    write(lease, 5, 1).abandon()
    assert numbers(lease, table) == [5]


def test_temporary_files_of_killed_processes_are_deleted(table: IcebergTable, lease: Lease) -> None:
    write(lease, 1, 2).abandon()
    folder = Path(lease.store.uri)
    (folder / f".{'0f' * 16}.tmp").write_bytes(b"half a state")
    before = {path.name for path in folder.iterdir()}
    assert numbers(lease, table) == [1, 2]
    assert before - {path.name for path in folder.iterdir()} == {f".{'0f' * 16}.tmp"}


def test_the_floor_outlives_its_snapshot(table: IcebergTable, lease: Lease) -> None:
    write(lease, 1, 4).abandon()
    flush(table, lease, 2)
    assert numbers(lease, table) == [3, 4]
    table.append(rows(9))
    expired = [one.snapshot_id for one in table.metadata.snapshots[:-1]]
    table.maintenance.expire_snapshots().by_ids(expired).commit()
    assert table_floor(table.refresh().metadata, lease.state.id) == 0
    assert numbers(lease, table) == [3, 4]


def test_a_rollback_does_not_bring_flushed_rows_back(table: IcebergTable, lease: Lease) -> None:
    write(lease, 1, 3).abandon()
    before = table.metadata.current_snapshot_id
    flush(table, lease, 2)
    assert before is not None
    table.manage_snapshots().set_current_snapshot(before).commit()
    assert numbers(lease, table.refresh()) == [3]


def test_a_torn_frame_is_cut_once(table: IcebergTable, lease: Lease) -> None:
    write(lease, 1, 2).abandon()
    (path,) = segment_paths(Path(lease.store.uri))
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"torn")
    seen = inspect_log(Path(lease.store.uri), lease.state, table.metadata)
    assert (seen.torn, seen.size, path.stat().st_size) == (4, whole + 4, whole + 4)
    assert recover(lease, table.metadata).torn == 4
    assert path.stat().st_size == whole
    assert recover(lease, table.metadata).torn == 0


# -- flushes without an answer -----------------------------------------------------------------


def test_an_intent_that_was_committed(table: IcebergTable, lease: Lease) -> None:
    write(lease, 1, 3).abandon()
    lease.record(intent=Intent(2, table.metadata.current_snapshot_id))
    flush(table, lease, 2)
    assert numbers(lease, table) == [3]
    assert (lease.state.floor, lease.state.intent) == (2, None)


@pytest.mark.parametrize("others", [0, 2])
def test_an_intent_that_was_not_committed(table: IcebergTable, lease: Lease, others: int) -> None:
    write(lease, 1, 3).abandon()
    lease.record(intent=Intent(2, table.metadata.current_snapshot_id))
    for _ in range(others):
        table.append(rows(5))
    assert numbers(lease, table) == [1, 2, 3]
    assert lease.state.intent is None


def test_an_intent_on_a_table_without_snapshots(catalog: sk.Catalog, lease: Lease) -> None:
    table = catalog.create_table("db.empty", SCHEMA).table
    write(lease, 1, 3).abandon()
    lease.record(intent=Intent(2, None))
    assert numbers(lease, table) == [1, 2, 3]
    lease.record(intent=Intent(2, None))
    table.append(rows(5))
    assert numbers(lease, table) == [1, 2, 3]
    catalog.drop_table("db.empty")


def test_an_intent_that_nobody_can_tell(table: IcebergTable, lease: Lease) -> None:
    write(lease, 1, 3).abandon()
    base = table.metadata.current_snapshot_id
    lease.record(intent=Intent(2, base))
    flush(table, lease, 2)
    table.append(rows(5))
    expired = [one.snapshot_id for one in table.metadata.snapshots[:-1]]
    table.maintenance.expire_snapshots().by_ids(expired).commit()
    with pytest.raises(sk.ConflictError, match=f"whether frames 1 to 2 were flushed.* {base} have") as caught:
        recover(lease, table.refresh().metadata)
    hint = "remove checksum from tail.json, and set intent to null and floor to 2 or to 0"
    assert hint in str(caught.value.hint)
    # As the hint says.
    path = Path(lease.store.path(STATE))
    document = json.loads(path.read_bytes())
    path.write_text(json.dumps({**document, "intent": None, "floor": 2}))
    with pytest.raises(sk.CorruptFileError, match="state of the tail is damaged"):
        read_state(lease.store)
    del document["checksum"]
    path.write_text(json.dumps({**document, "intent": None, "floor": 2}))
    lease.release()
    assert numbers(Lease.acquire(lease.store, "3f2b", "db.t"), table) == [3]
    assert len(segments(lease)) == 1


def test_a_later_lease_fences_an_earlier_one(table: IcebergTable, lease: Lease) -> None:
    flush(table, lease, 1)
    check_fence(table.metadata, lease)
    lease.release()
    later = Lease.acquire(lease.store, "3f2b", "db.t")
    check_fence(table.metadata, lease)
    flush(table, later, 2)
    check_fence(table.metadata, later)
    with pytest.raises(sk.ConflictError, match="has lost its lease"):
        check_fence(table.metadata, lease)
    later.release()


# -- damage that is dropped ----------------------------------------------------------------------


def damaged(lease: Lease, table: IcebergTable) -> str:
    with pytest.raises(sk.CorruptFileError) as caught:
        recover(lease, table.metadata)
    return str(caught.value)


@pytest.mark.parametrize("what", ["frame", "header", "gone", "payload", "cut"])
def test_the_log_ends_before_the_damage(what: str, table: IcebergTable, lease: Lease) -> None:
    """Later segments are whole, but what they change can depend on what is lost."""
    log = write(lease, 1, 5, segment_bytes=1)
    log.close()
    lease.record(durable=log.synced)
    path = segment_paths(Path(lease.store.uri))[2]
    data = path.read_bytes()
    if what == "frame":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif what == "header":
        path.write_bytes(b"X" + data[1:])
    elif what == "gone":
        path.unlink()
    elif what == "cut":
        path.write_bytes(data[:-5])
    else:
        log = Log(lease.store, lease.state.id, SCHEMA, ["id"], 3, sync="off")
        log.append(Kind.ROWS, pa.py_buffer(b"no record batch" * 9))
        log.close()
        # A frame with a right checksum whose payload was never a batch.
        Path(lease.store.path("synced")).write_bytes(mark_of(lease.state.id, 5))
    assert "damaged" in damaged(lease, table)
    found = recover(lease, table.metadata, drop=True)
    assert ([frame.number for frame in found.frames], found.last, found.lost) == ([1, 2], 2, 3)
    assert found.torn > 0
    assert lease.state.durable == 2
    kept = sorted(path.name for path in Path(lease.store.uri).glob("*.damaged"))
    assert [int(name.split(".")[0]) for name in kept] == ([4, 5] if what == "gone" else [3, 4, 5])
    # The log is whole, and goes on.
    write(lease, 3, 1).close()
    assert numbers(lease, table) == [1, 2, 3]
    again = recover(lease, table.metadata, drop=True)
    assert ([frame.number for frame in again.frames], again.lost, again.torn) == ([1, 2, 3], 0, 0)
