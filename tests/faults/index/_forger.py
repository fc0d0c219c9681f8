"""Segments that lie with right checksums, and what a lake makes of them: ``python -m`` this runs some cases.

*Structure* is what arrays say of each other: lengths, types, offsets, counts, numbers of rows and places in
the file. Whatever is wrong there is found, so answers must be right. *Values* are what the index says of the
data: bounds, counts of NULLs, sums, bits of filters. A lie there can't be told from the truth without the
data, so all that must hold is that nothing crashes and that no query is refused.
"""

from __future__ import annotations

import json
import random
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

import skipstone as sk
import skipstone.index.coverage as coverage_module
from skipstone.errors import SkipstoneError
from skipstone.index import container as box
from skipstone.index.manifest import Manifest
from skipstone.parquet.recorded import CHUNK
from skipstone.store.cache import Cache
from tests.faults.index._indexes import QUESTIONS, check, manifests, patience

Arrays = dict[tuple[int, str], Any]
Head = dict[str, Any]
Lie = Callable[[Arrays, Head, random.Random], tuple[str, bool]]

_FAR = (-1, 1, -(2**63), 2**62, 2**31, 2**63 - 1)
_COUNTED = ("firsts", "group_rows", "chunk_counts", "rows", "sizes")
_TYPES = ("<i8", "<u8", "<f8", "|u1", "<u4", "<i4", "|b1", "<i2", "|V8", "<f4")


def forge(folder: Path, rng: random.Random, lie: Lie | None = None) -> tuple[str, bool]:
    """Replace a segment by one that lies; what was done, and whether it is a lie about structure.

    Without a ``lie`` any is told, also by the directory of the segment or by the manifest.
    """
    (path,) = manifests(folder)
    if lie is None and rng.random() < 0.1:
        return _forge_manifest(path, rng), True
    manifest = Manifest.decode(path.read_bytes())
    note = rng.choice(manifest.segments)
    data = (folder / note.name).read_bytes()
    if lie is None and rng.random() < 0.15:
        what, body = _forge_directory(data, note.tail, rng)
        tail = note.tail if len(body) == len(data) else len(body) - (len(data) - note.tail)
        structural = True
    else:
        opened = box.Container.open(note.name, box.MemoryFile(data), len(data), note.tail, Cache(1))
        arrays = {key: opened.whole(key).copy() for key in opened.arrays()}
        head = json.loads(opened.head["segment"])
        what, structural = (lie or _lie)(arrays, head, rng)
        writer = box.ContainerWriter()
        for (column, name), array in arrays.items():
            writer.add(column, name, array)
        parts, tail = writer.parts({"segment": json.dumps(head)})
        body = b"".join(parts)
    (folder / note.name).write_bytes(body)
    forged = replace(note, size=len(body), tail=tail)
    notes = tuple(forged if each == note else each for each in manifest.segments)
    path.write_bytes(replace(manifest, segments=notes).encode())
    return what, structural


def _lie(arrays: Arrays, head: Head, rng: random.Random) -> tuple[str, bool]:
    lies: list[tuple[int, Lie]] = [
        (6, _number), (4, _length), (3, _missing), (4, _dtype), (5, _offsets), (5, _chunk), (4, _page),
        (4, _head), (2, _blooms), (2, _order), (4, _value), (4, _flip), (4, _swap), (5, damaged_schema),
    ]  # fmt: skip
    weights, ways = zip(*lies, strict=True)
    return rng.choices(ways, weights)[0](arrays, head, rng)


def _chosen(arrays: Arrays, rng: random.Random, fits: Callable[[str], bool]) -> tuple[tuple[int, str], Any]:
    key = rng.choice(sorted(key for key, array in arrays.items() if fits(key[1]) and array.size))
    return key, arrays[key]


def _number(arrays: Arrays, _: Head, rng: random.Random) -> tuple[str, bool]:
    """A count of rows, row groups or chunks, or the number of a kind."""
    key, array = _chosen(arrays, rng, lambda name: name in (*_COUNTED, "kin"))
    at = rng.randrange(len(array))
    step = rng.choice(_FAR)
    wrong = int(array[at]) + step if key[1] != "kin" else 7
    array[at] = np.array(wrong & (2**64 - 1), dtype=np.uint64).astype(array.dtype)
    return f"{key} at {at} by {step}", True


def _length(arrays: Arrays, _: Head, rng: random.Random) -> tuple[str, bool]:
    # Byte strings may end before their data does; nothing reads keys and versions but status.
    key, array = _chosen(arrays, rng, lambda name: not name.endswith("/data"))
    arrays[key] = array[:-1] if rng.random() < 0.5 else np.append(array, array[-1:])
    return f"{key} {len(arrays[key])} long", True


def _missing(arrays: Arrays, _: Head, rng: random.Random) -> tuple[str, bool]:
    # Of sums the highest rows may be zeros, which are left out.
    key, _array = _chosen(arrays, rng, lambda name: not name.startswith("sum/") or "/0" not in name[-3:])
    del arrays[key]
    return f"{key} missing", True


def _dtype(arrays: Arrays, _: Head, rng: random.Random) -> tuple[str, bool]:
    key, array = _chosen(arrays, rng, lambda _: True)
    wanted = np.dtype(rng.choice([name for name in _TYPES if np.dtype(name) != array.dtype]))
    if wanted.itemsize == array.dtype.itemsize:
        arrays[key] = array.view(wanted)
    else:
        arrays[key] = np.zeros(len(array), dtype=wanted)
    return f"{key} as {wanted}", True


def _offsets(arrays: Arrays, _: Head, rng: random.Random) -> tuple[str, bool]:
    """Offsets that fall, or lead out of their data."""
    key, array = _chosen(arrays, rng, lambda name: name.endswith("/offsets") and name != "page/offsets")
    at = rng.randrange(len(array))
    beyond = len(arrays[key[0], key[1].replace("/offsets", "/data")])
    array[at] = rng.choice([-1, beyond + 1, 2**62, -(2**63)])
    return f"{key} at {at}: {array[at]}", True


def _chunk(arrays: Arrays, _: Head, rng: random.Random) -> tuple[str, bool]:
    """A chunk that lies elsewhere: outside of its file, or where another is."""
    chunks = arrays[box.COMMON, "chunks"].view(CHUNK)
    name = rng.choice(("start", "size", "values", "dictionary_use", "bloom", "places", "bounds"))
    at = rng.choice([number for number in range(len(chunks)) if chunks[number][name] >= 0])
    others = sorted({int(value) for value in chunks[name]} - {int(chunks[at][name])})
    match name:
        case "dictionary_use":
            chunks[at][name] = 4 + rng.randrange(1000)
        case "size" | "values":
            chunks[at][name] += rng.choice((-(2**62), 2**62, 10**9))
        case _:
            chunks[at][name] = rng.choice((2**62, 10**9, rng.choice(others)))
    # What is no chunk may be said to be where nothing else is.
    return f"chunk {at} {name}: {chunks[at][name]}", name in ("start", "size", "values", "dictionary_use")


def _page(arrays: Arrays, _: Head, rng: random.Random) -> tuple[str, bool]:
    """Pages outside of their chunk, out of order, or beyond their row group."""
    key, array = _chosen(
        arrays, rng, lambda name: name in ("page/firsts", "page/first_rows", "page/offsets", "page/sizes")
    )
    at = rng.randrange(len(array))
    if key[1] == "page/sizes":
        array[at] = rng.choice((-1, 0, 2**31 - 1))
    elif key[1] == "page/first_rows":
        array[at] = rng.choice((-1, 2**62, 10**6))
    elif key[1] == "page/firsts":
        array[at] = rng.choice((-1, 2**62, int(array[at]) + 1, int(array[at]) - 1))
    else:
        array[at] = rng.choice((-1, 0, 2**62, 10**9, int(array[at]) + 1))
    return f"{key} at {at}: {array[at]}", True


def _head(_: Arrays, head: Head, rng: random.Random) -> tuple[str, bool]:
    name = rng.choice(("files", "groups", "rows", "block", "paths", "types", "spec", "schemas", "own_blooms"))
    lies: dict[str, list[Any]] = {
        "files": [head["files"] + 1, -1, None, 10**12],
        "groups": [head["groups"] - 1, 2**70, "x"],
        "rows": [-5, head["rows"] // 1000, 1.5],
        "block": [0, -1, "many"],
        "paths": [head["paths"][:-1], None, 7, [1, 2], [["\ud800"]]],
        "types": ["", "00" * 100, head["types"][:-20], "zz", "\0", "é"],
        "schemas": [None, [], [None], "x", [head["schemas"][0][::-1]], [{}] * 9],
        "own_blooms": [None, "", [], 2**70],
        "spec": [None, {}, 3],
    }
    if rng.random() < 0.2:
        del head[name]
        return f"head without {name}", True
    head[name] = rng.choice(lies[name])
    return f"head {name}: {str(head[name])[:60]}", True


def _blooms(arrays: Arrays, _: Head, rng: random.Random) -> tuple[str, bool]:
    """Filters of units that there are not, or out of order."""
    key, array = _chosen(arrays, rng, lambda name: name.endswith("/units"))
    if len(array) > 1 and rng.random() < 0.5:
        array[[0, -1]] = array[[-1, 0]]
    else:
        array[-1] = 2**31
    return f"{key}: {array[:1]} to {array[-1:]}", True


def _order(arrays: Arrays, _: Head, rng: random.Random) -> tuple[str, bool]:
    """An order of files that names one that there is not, or one twice."""
    key, array = _chosen(arrays, rng, lambda name: name == "file/order")
    at = rng.randrange(len(array))
    array[at] = rng.choice((len(array), 2**31, int(array[at - 1])))
    return f"{key} at {at}: {array[at]}", True


def _value(arrays: Arrays, _: Head, rng: random.Random) -> tuple[str, bool]:
    """Anything else: it may change an answer, and nothing worse."""
    key, array = _chosen(arrays, rng, lambda name: not name.startswith("sketch/"))
    raw = array.view(np.uint8)
    for _ in range(rng.randrange(1, 4)):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    return f"{key} scribbled over", False


def _by_name(arrays: Arrays, rng: random.Random) -> tuple[tuple[int, str], Any]:
    """An array of a random name: else most would be of the levels that have many."""
    name = rng.choice(sorted({name for (_, name), array in arrays.items() if array.size > 1}))
    return _chosen(arrays, rng, lambda other: other == name)


def _flip(arrays: Arrays, _: Head, rng: random.Random) -> tuple[str, bool]:
    key, array = _by_name(arrays, rng)
    raw = array.view(np.uint8)
    for _ in range(rng.randrange(1, 3)):
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    return f"{key} flipped", False


def _swap(arrays: Arrays, _: Head, rng: random.Random) -> tuple[str, bool]:
    """Two elements in each other's place, as those of two files."""
    key, array = _by_name(arrays, rng)
    one, other = rng.sample(range(len(array)), 2)
    array[[one, other]] = array[[other, one]]
    return f"{key} swapped at {one} and {other}", False


def damaged_schema(arrays: Arrays, _: Head, rng: random.Random) -> tuple[str, bool]:
    """The schema of a kind of files: names, types, base64 of Arrow's schema, texts that are not UTF-8."""
    body = arrays[box.COMMON, "kins/data"]
    at = rng.randrange(len(body))
    match rng.randrange(4):
        case 0:
            body[at] ^= 1 << rng.randrange(8)
        case 1:
            body[at] = 0 if body[at] else 1
        case 2:
            body[at] = 0xFF if body[at] != 0xFF else 0
        case 3:
            body[at : at + 8] = rng.choice([b"\0", b"=", b"\xc3", b"~"])[0]
    return f"schema at {at}", True


WRONG: tuple[Any, ...] = (
    None, -1, 0, 1.5, True, 2**63, 2**70, "", "\0", "x", "../x", "\ud800", [], {}, [1, 2], float("nan"),
)  # fmt: skip
_NESTED = ("[" * 100_000, '{"a":' * 100_000, "", "null", "[]", '"x"', "1", "{", "\0", "9" * 5_000)


def _forge_manifest(path: Path, rng: random.Random) -> str:
    """Values of another type, or no JSON at all, with a right checksum."""
    body = json.loads(path.read_bytes().partition(b"\n")[2])
    if rng.random() < 0.2:
        text = rng.choice(_NESTED)
        what = f"manifest {text[:10]!r}"
    else:
        place = rng.choice([body, body["segments"][0], body["spec"]])
        name = rng.choice(sorted(place))
        place[name] = rng.choice(WRONG)
        what, text = f"manifest {name}: {place[name]!r}", json.dumps(body)
    path.write_text(
        f"skipstone index, format {box.FORMAT}, check {xxh3_64_hexdigest(text.encode())}\n{text}\n"
    )
    return what


def _forge_directory(data: bytes, tail: int, rng: random.Random) -> tuple[str, bytes]:
    """Places, sizes or types of arrays that lie, in a directory whose checksum is right; or a bomb."""
    end = data[-tail:]
    _, _, _, told, table, _, _, _ = box._TRAILER.unpack(end[-box._TRAILER.size :])
    packed = bytearray(zlib.decompress(end[told : told + table]))
    count, at = len(packed) // box._ENTRY.itemsize, 0
    places = {}
    for name in box._ENTRY.names or ():
        places[name] = np.frombuffer(packed, dtype=box._ENTRY[name], count=count, offset=at)
        at += count * box._ENTRY[name].itemsize
    what = rng.choice(["column", "name", "type", "start", "size", "sum", "bomb", "cut"])
    head, body = end[:told], bytes(packed)
    if what == "bomb":
        head = zlib.compress(b" " * (64 << 20), 9)
    elif what == "cut":
        body = body[: rng.randrange(len(body))]
    else:
        number = rng.randrange(count)
        wrong = rng.choice((1, 8, 64, 2**15, -1, -64, 2**62))
        column = places[what].copy()
        column[number] += np.array(wrong & 0xFFFF if column.dtype.itemsize < 8 else wrong).astype(
            column.dtype
        )
        columns = {**places, what: column}
        body = b"".join(columns[name].tobytes() for name in box._ENTRY.names or ())
        what = f"{what} of array {number} by {wrong}"
    pieces = (head, zlib.compress(body), end[told + table : -box._TRAILER.size])
    check_sum = xxh3_64_intdigest(b"".join(pieces))
    trailer = box._TRAILER.pack(box._MAGIC, box.FORMAT, 0, *map(len, pieces), check_sum, box._MAGIC)
    return f"directory: {what}", data[:-tail] + b"".join(pieces) + trailer


# -- what comes of it --------------------------------------------------------------------------


def outcome(root: Path, folder: Path, table: pa.Table, rng: random.Random, *, structural: bool) -> str:
    """ "" if all is well, else what is wrong."""
    try:
        with patience():
            lake = sk.open(root, index_root=folder)
            for question in rng.sample(QUESTIONS, 3):
                check(lake, table, question)
            asked = (sk.count(), sk.sum("id"), sk.min("text"), sk.max("id"), sk.count("x"))
            (found,) = lake.scan("id >= 300").aggregate(*asked).to_arrow().to_pylist()
            ids = table["id"].to_pylist()
            wanted = [sum(n >= 300 for n in ids), sum(n for n in ids if n >= 300)]
            assert [*found.values()][:2] == wanted
            str(lake.index.status())
    except AssertionError as error:
        return f"wrong answer: {str(error)[:200]}" if structural else ""
    except SkipstoneError as error:
        return f"refused, {type(error).__name__}: {error}"[:300]
    except BaseException as error:
        return f"foreign {type(error).__name__}: {error}"[:300]
    return ""


def main(root: Path, folder: Path, seed: str, first: int, count: int) -> None:
    """Run cases, and print each before it begins and what went wrong."""
    table = pa.concat_tables([pq.read_table(path) for path in sorted(root.glob("*.parquet"))])
    good = {path: path.read_bytes() for path in folder.iterdir()}
    usual = {name: getattr(coverage_module, name) for name in ("_SMALL", "_FEW", "_SHARE")}
    for number in range(first, first + count):
        rng = random.Random(f"{seed} {number}")
        what, structural = forge(folder, rng)
        print(f"{number}: {what}", flush=True)
        for name, value in usual.items():
            # Every other one is planned as a large lake is.
            setattr(coverage_module, name, value if number % 2 else int(name == "_SHARE"))
        if problem := outcome(root, folder, table, rng, structural=structural):
            print(f"FAILED {number}: {what}: {problem}", flush=True)
        for path, body in good.items():
            path.write_bytes(body)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
