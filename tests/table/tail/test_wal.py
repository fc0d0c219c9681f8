"""The write-ahead log: what was acknowledged is read again, whatever is left of the last frame."""

from __future__ import annotations

import os
import random
import struct
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from xxhash import xxh3_64

import skipstone as sk
from skipstone.store.local import LocalStore
from skipstone.table.tail.wal import (
    _FRAME,
    _HEAD,
    MARK,
    Frame,
    Kind,
    Log,
    SyncPolicy,
    cut,
    mark_of,
    read_mark,
    read_segment,
    read_segments,
    segment_paths,
)

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
TAIL = "00aa"


def rows(*ids: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(ids, pa.int64()), pa.array([f"v{n}" for n in ids])], schema=SCHEMA)


def keys(*ids: int) -> pa.RecordBatch:
    return rows(*ids).select(["id"])


def opened(folder: Path, first: int = 1, *, sync: SyncPolicy = "every", segment_bytes: int = 1 << 20) -> Log:
    return Log(LocalStore(str(folder)), TAIL, SCHEMA, ["id"], first, sync=sync, segment_bytes=segment_bytes)


def write(log: Log, *batches: pa.RecordBatch) -> list[int]:
    numbers = []
    for batch in batches:
        kind = Kind.ROWS if "v" in batch.schema.names else Kind.KEYS
        numbers.append(log.append(kind, batch.serialize()))
        log.acknowledge(numbers[-1])
    return numbers


def frames(folder: Path, floor: int = 0, durable: int = 0) -> list[Frame]:
    return [one for segment in read_segments(folder, TAIL, floor, durable) for one in segment.read(floor)]


def seen(folder: Path, floor: int = 0) -> list[tuple[int, str, list[int]]]:
    return [(one.number, one.kind.name, one.rows["id"].to_pylist()) for one in frames(folder, floor)]


def only(folder: Path) -> Path:
    (path,) = segment_paths(folder)
    return path


@pytest.mark.parametrize("sync", ["every", "interval", "off"])
def test_frames_are_read_again(tmp_path: Path, sync: SyncPolicy) -> None:
    log = opened(tmp_path, sync=sync)
    assert write(log, rows(1, 2), keys(1), rows(3)) == [1, 2, 3]
    # Without a close: the process can end at any time.
    assert seen(tmp_path) == [(1, "ROWS", [1, 2]), (2, "KEYS", [1]), (3, "ROWS", [3])]
    assert seen(tmp_path, floor=2) == [(3, "ROWS", [3])]
    first = frames(tmp_path)[0].rows
    assert first.schema.equals(SCHEMA)
    assert first["v"].to_pylist() == ["v1", "v2"]
    log.close()
    assert log.synced == 3


def test_only_one_sync_policy_waits(tmp_path: Path) -> None:
    every, off = opened(tmp_path / "every"), opened(tmp_path / "off", sync="off")
    write(every, rows(1))
    write(off, rows(1))
    assert (every.synced, off.synced) == (1, 0)
    off.sync()
    assert off.synced == 1
    every.close()
    off.close()


def test_the_interval_passes_without_another_call(tmp_path: Path) -> None:
    log = Log(LocalStore(str(tmp_path)), TAIL, SCHEMA, ["id"], 1, sync="interval", interval=0.001)
    write(log, rows(1))
    for _ in range(10_000):
        if log.synced:
            break
        threading.Event().wait(0.002)
    assert log.synced == 1
    log.close()


def test_one_sync_serves_many_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one thread syncs, others append; the next sync covers all of them."""
    entered, leave, calls = threading.Event(), threading.Event(), []
    sync = os.fdatasync

    def slow(descriptor: int) -> None:
        calls.append(descriptor)
        entered.set()
        assert leave.wait(30)
        sync(descriptor)

    log = opened(tmp_path)
    monkeypatch.setattr(os, "fdatasync", slow)
    leader = threading.Thread(target=write, args=(log, rows(0)))
    leader.start()
    assert entered.wait(30)
    others = [threading.Thread(target=write, args=(log, rows(n))) for n in range(1, 9)]
    for thread in others:
        thread.start()
    while log.last < 9:
        threading.Event().wait(0.001)
    leave.set()
    for thread in [leader, *others]:
        thread.join(30)
    assert log.synced == 9
    assert len(calls) == 2
    log.close()
    assert len(seen(tmp_path)) == 9


# -- segments ----------------------------------------------------------------------------------


def test_segments_are_rotated_and_trimmed(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=1)
    write(log, *map(rows, range(5)))
    names = [f"{n:020d}.wal" for n in range(1, 6)]
    assert [path.name for path in segment_paths(tmp_path)] == names
    assert log.trim(0) == 0
    assert log.trim(2) == 2
    assert [path.name for path in segment_paths(tmp_path)] == names[2:]
    # The open segment stays, whatever is flushed.
    assert log.trim(5) == 2
    assert [path.name for path in segment_paths(tmp_path)] == names[4:]
    assert seen(tmp_path, floor=5) == []
    log.rotate()
    assert log.trim(5) == 1
    assert segment_paths(tmp_path) == []
    write(log, rows(9))
    assert seen(tmp_path, floor=5) == [(6, "ROWS", [9])]
    log.close()


def test_a_segment_that_is_missing_is_an_error(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=1)
    write(log, *map(rows, range(4)))
    log.close()
    paths = segment_paths(tmp_path)
    paths[1].unlink()
    with pytest.raises(sk.CorruptFileError, match="frames 2 to 2 are missing before this segment"):
        frames(tmp_path)
    # They are flushed, and not needed.
    assert seen(tmp_path, floor=2) == [(3, "ROWS", [2]), (4, "ROWS", [3])]
    paths[0].unlink()
    with pytest.raises(sk.CorruptFileError, match="frames 2 to 2 are missing"):
        frames(tmp_path, floor=1)
    paths[2].unlink()
    paths[3].unlink()
    # The mark remembers them; after a power failure it can be missing.
    with pytest.raises(sk.CorruptFileError, match="frames 1 to 4 are missing"):
        frames(tmp_path)
    (tmp_path / MARK).unlink()
    assert frames(tmp_path) == []
    with pytest.raises(sk.CorruptFileError, match="frames 1 to 4 are missing"):
        frames(tmp_path, durable=4)


def test_segments_of_another_tail_are_refused(tmp_path: Path) -> None:
    log = opened(tmp_path)
    write(log, rows(1))
    log.close()
    with pytest.raises(sk.CorruptFileError, match="belongs to the tail 00aa, not to 00bb"):
        read_segments(tmp_path, "00bb")


# -- damage ------------------------------------------------------------------------------------


def three(folder: Path) -> tuple[Path, list[int]]:
    """A log of three frames, and where each begins; the last number is the end."""
    log = opened(folder)
    write(log, rows(1))
    path = only(folder)
    ends = [path.stat().st_size]
    for n in (2, 3):
        write(log, rows(n))
        ends.append(path.stat().st_size)
    log.close()
    start = ends[0] - (ends[1] - ends[0])
    return path, [start, *ends]


def test_a_torn_frame_is_cut_at_every_byte(tmp_path: Path) -> None:
    path, ends = three(tmp_path)
    data = path.read_bytes()
    for size in range(ends[2], ends[3]):
        path.write_bytes(data[:size])
        segment = read_segment(path, last=True)
        assert [one.rows["id"].to_pylist() for one in segment.read()] == [[1], [2]]
        assert (segment.good, segment.size) == (ends[2], size)
        assert cut(segment) == size - ends[2]
        assert path.stat().st_size == ends[2]
        # Writing continues in a segment of its own.
        log = opened(tmp_path, segment.last + 1, sync="off")
        write(log, rows(4))
        log.abandon()
        assert seen(tmp_path) == [(1, "ROWS", [1]), (2, "ROWS", [2]), (3, "ROWS", [4])]
        segment_paths(tmp_path)[1].unlink()


def test_every_wrong_byte_of_the_last_frame_is_noticed(tmp_path: Path) -> None:
    path, ends = three(tmp_path)
    data = path.read_bytes()
    for at in range(ends[2], ends[3]):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        (tmp_path / MARK).write_bytes(mark_of(TAIL, 3))
        with pytest.raises(sk.CorruptFileError, match=r"frame 3 at byte .* is damaged, but had been synced"):
            frames(tmp_path)
        # As after a power failure: the mark is older, or not there at all.
        for mark in (mark_of(TAIL, 2), b"", bytes(16), mark_of("00bb", 3)):
            (tmp_path / MARK).write_bytes(mark)
            assert [frame.number for frame in frames(tmp_path)] == [1, 2]
        # When the log was closed the frame was there.
        with pytest.raises(sk.CorruptFileError, match="frame 3 at byte"):
            frames(tmp_path, durable=3)


def test_a_log_that_was_cut_is_noticed_at_every_byte(tmp_path: Path) -> None:
    """The process was killed: all frames were synced, and the mark says so."""
    path, ends = three(tmp_path)
    data = path.read_bytes()
    for size in range(ends[0], ends[3]):
        path.write_bytes(data[:size])
        with pytest.raises(sk.CorruptFileError, match=r"had been synced|frames . to 3 are missing"):
            frames(tmp_path)


@pytest.mark.parametrize("sync", ["every", "interval", "off"])
def test_the_mark_says_what_was_synced(tmp_path: Path, sync: SyncPolicy) -> None:
    log = Log(LocalStore(str(tmp_path)), TAIL, SCHEMA, ["id"], 1, sync=sync, interval=1e6)
    for number in (1, 2):
        write(log, rows(number))
        assert read_mark(tmp_path, TAIL) == (number if sync == "every" else 0)
    log.sync()
    assert read_mark(tmp_path, TAIL) == 2
    write(log, rows(3))
    log.rotate()
    assert (read_mark(tmp_path, TAIL), read_mark(tmp_path, "00bb")) == (3, 0)
    log.close()


def test_forged_frames_with_right_checksums(tmp_path: Path) -> None:
    """Whatever a payload is, it is refused or a valid batch: reading it never ends the process."""
    path, ends = three(tmp_path)
    data, head = path.read_bytes(), ends[2]
    start = head + _HEAD
    chance, refused = random.Random(5), 0
    for turn in range(150):
        payload = bytearray(data[start : ends[3]])
        if turn:
            for _ in range(chance.randint(1, 4)):
                at = chance.randrange(len(payload))
                payload[at] = chance.choice([0, 255, 1, 127, chance.randrange(256)])
        else:
            # The offsets of the strings lead far outside the buffer.
            at = payload.rindex(struct.pack("<2i", 0, 2))
            payload[at + 4 : at + 8] = struct.pack("<i", 1 << 30)
        digest = xxh3_64(data[head : head + _FRAME.size])
        digest.update(bytes(payload))
        forged = data[head : head + _FRAME.size] + struct.pack("<Q", digest.intdigest()) + payload
        path.write_bytes(data[:head] + forged)
        try:
            frames(tmp_path)[2].rows.to_pylist()
        except sk.CorruptFileError:
            refused += 1
        else:
            assert turn
    assert 50 <= refused < 150


def test_a_frame_damaged_in_the_middle_is_an_error(tmp_path: Path) -> None:
    path, ends = three(tmp_path)
    data = path.read_bytes()
    for at in range(ends[1], ends[2]):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(sk.CorruptFileError) as caught:
            frames(tmp_path)
        assert f"frame 2 at byte {ends[1]:,} is damaged, but had been synced" in caught.value.message
        assert caught.value.path == str(path)
        assert "backup" in str(caught.value.hint)


def test_a_hole_among_frames_that_were_not_synced_is_the_end(tmp_path: Path) -> None:
    """A power failure can keep the second of two pages and lose the first one."""
    log = opened(tmp_path, sync="off")
    write(log, rows(1))
    log.sync()
    path = only(tmp_path)
    start = path.stat().st_size
    write(log, rows(2), rows(3))
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(40))
    assert seen(tmp_path) == [(1, "ROWS", [1])]
    log.abandon()


@pytest.mark.parametrize("size", [1, 7, 40, 4096])
def test_zeros_at_the_end_are_cut(tmp_path: Path, size: int) -> None:
    path, ends = three(tmp_path)
    with path.open("ab") as file:
        file.write(bytes(size))
    assert [frame.number for frame in frames(tmp_path)] == [1, 2, 3]
    assert cut(read_segment(path, last=True)) == size
    assert path.stat().st_size == ends[3]


def test_damage_in_a_segment_that_others_follow(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=1)
    write(log, rows(1), rows(2))
    log.close()
    first = segment_paths(tmp_path)[0]
    first.write_bytes(first.read_bytes()[:-1])
    (tmp_path / MARK).unlink()
    with pytest.raises(sk.CorruptFileError, match=r"frame 1 .* and later segments follow"):
        frames(tmp_path)


def test_headers_are_checked(tmp_path: Path) -> None:
    path, ends = three(tmp_path)
    data = path.read_bytes()
    for at in range(0, ends[0], 5):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(sk.CorruptFileError, match="segment has no valid header"):
            frames(tmp_path)
    for size in (0, 3, ends[0] - 1):
        path.write_bytes(data[:size])
        with pytest.raises(sk.CorruptFileError, match="segment has no valid header"):
            frames(tmp_path)
    path.write_bytes(data)
    moved = path.with_name(f"{2:020d}.wal")
    path.rename(moved)
    with pytest.raises(sk.CorruptFileError, match="begins with frame 1, which its name contradicts"):
        frames(tmp_path)


def test_a_segment_without_frames_is_deleted(tmp_path: Path) -> None:
    path, ends = three(tmp_path)
    path.write_bytes(path.read_bytes()[: ends[0] + 3])
    segment = read_segment(path, last=True)
    assert (segment.frames, segment.last) == ((), 0)
    assert cut(segment) == 3
    assert segment_paths(tmp_path) == []


# -- failures ----------------------------------------------------------------------------------


def test_a_full_disk_leaves_whole_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path)
    write(log, rows(1))
    writev = os.writev

    def full(descriptor: int, parts: list[memoryview]) -> int:
        writev(descriptor, [parts[0][:9]])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", full)
        with pytest.raises(sk.WriteError, match="no space left on device"):
            write(log, rows(2))
    assert write(log, rows(3)) == [2]
    log.close()
    assert seen(tmp_path) == [(1, "ROWS", [1]), (2, "ROWS", [3])]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writev = os.writev
    monkeypatch.setattr(os, "writev", lambda at, parts: writev(at, [parts[0][:7]]))
    log = opened(tmp_path)
    write(log, rows(1, 2, 3), rows(4))
    log.close()
    assert seen(tmp_path) == [(1, "ROWS", [1, 2, 3]), (2, "ROWS", [4])]


def test_after_a_failed_sync_nothing_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path)
    write(log, rows(1))

    def fails(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fails)
        with pytest.raises(sk.WriteError, match="Input/output error"):
            write(log, rows(2))
    # The next sync of the system could succeed without having written anything.
    for call in (lambda: write(log, rows(3)), log.sync, log.rotate, log.close):
        with pytest.raises(sk.WriteError, match="Input/output error") as caught:
            call()
        assert "open another one" in str(caught.value.hint)
    assert [frame.number for frame in frames(tmp_path)] == [1, 2]


def test_a_payload_has_a_limit(tmp_path: Path) -> None:
    log = Log(LocalStore(str(tmp_path)), TAIL, SCHEMA, ["id"], 1, longest=100)
    size = rows(*range(3)).serialize().size
    with pytest.raises(sk.WriteError, match=f"take {size} bytes in the write-ahead log"):
        write(log, rows(*range(3)))
    log.close()
    assert segment_paths(tmp_path) == []
