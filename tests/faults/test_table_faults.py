"""Tables with damaged, missing and lying files: a clear error that names the file, or the right rows."""

from __future__ import annotations

import itertools
import json
import pickle
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import skipstone as sk
from skipstone.errors import CorruptFileError, FileError, ReadError, SchemaError, SkipstoneError
from skipstone.iceberg.manifests.reading import clear_cache
from tests.iceberg._maker import Maker
from tests.iceberg._manifests import DATA, EQUALITY, POSITIONS, File, Manifest
from tests.support.samples import sample

FOLDER = "_skipstone"


def some(first: int, last: int, **more: Any) -> list[dict[str, Any]]:
    return [{"id": n, "s": f"s{n}", "p": "ab"[n % 2], **more} for n in range(first, last)]


def make(root: Path, version: int = 2, *, deletes: bool = True, seed: Any = 0) -> Maker:
    columns = [("id", "long"), ("s", "string"), ("p", "string")]
    maker = Maker(root, columns, [("p", "identity")], format_version=version, seed=seed)
    maker.append(some(0, 40), merge=False)
    maker.append(some(40, 60), merge=False)
    if deletes and version == 3:
        maker.delete_vector({maker.places()[0][0]: [0, 2]})
    elif deletes:
        maker.delete_positions(maker.places()[:2], merge=False)
        maker.delete_equal([maker.field("id").id], [(7,), (8,)], partitions=[(0, ("a",)), (0, ("b",))])
    return maker


def ask(maker: Maker | str, where: Any = None, **more: Any) -> list[int]:
    clear_cache()
    location = maker if isinstance(maker, str) else maker.metadata_location
    found: list[int] = sorted(sk.open(location).scan(where, **more).to_arrow()["id"].to_pylist())
    return found


# -- files that are not what they were -----------------------------------------------------------

DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "noise": lambda path: path.write_bytes(random.Random(1).randbytes(path.stat().st_size)),
    "text": lambda path: path.write_text("hello"),
}


def target(maker: Maker, what: str) -> Path:
    head = maker.head()
    assert head is not None
    if what == "metadata":
        return Path(maker.metadata_location)
    if what == "list":
        return Path(head.location)
    if what.endswith("manifest"):
        return Path(next(m.path for m in head.manifests if m.content == (what == "delete manifest")))
    content, puffin = {
        "data": (DATA, False),
        "positions": (POSITIONS, False),
        "equality": (EQUALITY, False),
        "vector": (POSITIONS, True),
    }[what]
    files = [e.file for e in head.files if (e.file.content, e.file.format == "PUFFIN") == (content, puffin)]
    return files[0].place


TARGETS = ["metadata", "list", "manifest", "delete manifest", "data", "positions", "equality", "vector"]


@pytest.mark.parametrize("what", TARGETS)
def test_a_damaged_file_is_named_with_a_next_step(what: str, tmp_path: Path) -> None:
    for number, (name, damage) in enumerate(DAMAGE.items()):
        maker = make(tmp_path / str(number), 3 if what == "vector" else 2, seed=number)
        path = target(maker, what)
        damage(path)
        with pytest.raises(FileError) as refused:
            ask(maker)
        assert refused.value.path == str(path), name
        # What Parquet itself makes of noise is told by its own room.
        assert refused.value.hint or (name == "noise" and path.suffix == ".parquet"), name


def test_what_no_question_needs_is_not_missed(tmp_path: Path) -> None:
    maker = make(tmp_path, deletes=False)
    wanted = ask(maker, "id < 40 and p = 'b'")
    assert len(wanted) == 20
    victims = [e.file for e in maker.head().files if e.file.partition == ("a",)]  # type: ignore[union-attr]
    for file in victims:
        file.place.unlink()
    assert ask(maker, "id < 40 and p = 'b'") == wanted
    with pytest.raises(ReadError):
        ask(maker, "id < 40")
    # Nor are delete files of other partitions.
    maker = make(tmp_path / "deletes")
    wanted = ask(maker, "p = 'b'")
    for entry in maker.head().files:  # type: ignore[union-attr]
        if entry.file.content != DATA and entry.file.partition == ("a",):
            entry.file.place.unlink()
    assert ask(maker, "p = 'b'") == wanted


@pytest.mark.parametrize("version", [1, 2, 3])
def test_random_damage_gives_an_error_of_ours_or_rows(version: int, tmp_path: Path) -> None:
    """No traceback of another library's escapes, whatever the bytes."""
    # A path of one length, whatever the folder's: damage strikes the same places in every run.
    maker = make(tmp_path / ("x" * (160 - len(str(tmp_path)))), version, deletes=version > 1, seed=version)
    head = maker.head()
    assert head is not None
    files = [
        Path(maker.metadata_location),
        Path(head.location),
        *(Path(manifest.path) for manifest in head.manifests),
        *(entry.file.place for entry in head.files),
    ]
    rng = random.Random(version)
    refused: list[SkipstoneError] = []
    for _ in range(sample("damaged tables")):
        path = rng.choice(files)
        body = path.read_bytes()
        path.write_bytes(_damaged(body, rng))
        try:
            ask(maker, rng.choice([None, "id < 20", "p = 'a'", "s = 's3'"]))
        except SkipstoneError as error:
            refused.append(error)
        finally:
            path.write_bytes(body)
    assert refused
    assert all(error.path for error in refused)


def _damaged(body: bytes, rng: random.Random) -> bytes:
    changed = bytearray(body)
    for _ in range(rng.choice([1, 1, 3])):
        at = rng.randrange(max(len(changed), 1))
        match rng.randrange(4):
            case 0:
                changed[at : at + 1] = bytes([rng.choice([0, 1, 127, 128, 255])])
            case 1:
                del changed[at : at + rng.choice([1, 4, 50])]
            case 2:
                changed[at:at] = rng.randbytes(rng.choice([1, 3, 16]))
            case _:
                changed[at : at + 1] = bytes([changed[at] ^ 1 << rng.randrange(8)]) if changed else b"x"
    return bytes(changed)


# -- paths that lead out of the table ------------------------------------------------------------


def outside(path: Path, root: Path) -> Path:
    """A copy of a file elsewhere."""
    root.mkdir(exist_ok=True)
    return Path(shutil.copy(path, root))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("indexed", [False, True], ids=["", "indexed"])
@pytest.mark.parametrize("what", [what for what in TARGETS if what != "metadata"])
def test_links_out_of_a_table_are_refused_on_demand(what: str, indexed: bool, tmp_path: Path) -> None:
    """Whatever of a table is a link: read as it is, or refused if the table is from others."""
    maker = make(tmp_path / "table", 3 if what == "vector" else 2)
    path = target(maker, what)
    copy = outside(path, tmp_path / "elsewhere")
    wanted = ask(maker)
    if indexed:
        sk.open(maker.metadata_location).index.build(engine="local")
    path.unlink()
    path.symlink_to(copy)
    assert ask(maker) == wanted
    clear_cache()
    lake = sk.open(maker.metadata_location, stay_below_root=True)
    if indexed and what in ("list", "manifest", "delete manifest"):
        # The index knows what they say, and nobody opens them.
        assert sorted(lake.scan().to_arrow()["id"].to_pylist()) == wanted
        return
    for opened in (lake, pickle.loads(pickle.dumps(lake))):
        with pytest.raises(ReadError, match=f"outside its root {tmp_path}/table") as refused:
            opened.scan().to_arrow()
        assert (refused.value.path, "stay_below_root" in str(refused.value.hint)) == (str(path), True)


def test_names_outside_a_table_are_refused_on_demand(tmp_path: Path) -> None:
    def named(file: File) -> str:
        return str(outside(file.place, tmp_path / "elsewhere"))

    maker, file = lying(tmp_path / "table", path=named)
    assert len(ask(maker)) == 70
    lake = sk.open(maker.metadata_location, stay_below_root=True)
    # What no question needs is not opened.
    assert lake.scan("id < 60").count() == 60
    for ask_it in (lambda: lake.scan().count(), lambda: lake.scan("id = 103").to_arrow()):
        with pytest.raises(ReadError, match="outside its root") as refused:
            ask_it()
        assert refused.value.path == file.path
    with pytest.raises(ReadError, match="outside its root"):
        lake.index.build(engine="local")
    # A plan stays within bounds wherever it is executed.
    plan = sk.open(maker.metadata_location).scan("id = 103").plan()
    assert sk.execute(pickle.loads(pickle.dumps(plan))).to_arrow().num_rows == 1

    def elsewhere(metadata: dict[str, Any]) -> None:
        listed = metadata["snapshots"][-1]["manifest-list"]
        metadata["snapshots"][-1]["manifest-list"] = str(outside(Path(listed), tmp_path / "elsewhere"))

    location = changed(maker, elsewhere)
    assert sk.open(location).scan().count() == 70
    with pytest.raises(ReadError, match=r"elsewhere/.*outside its root"):
        sk.open(location, stay_below_root=True).scan().count()


@pytest.mark.parametrize("location", ["/", "{tmp}", "{tmp}/table/..", "{tmp}/tables", "s3://bucket/table"])
def test_a_table_can_t_say_itself_where_it_lies(location: str, tmp_path: Path) -> None:
    maker = make(tmp_path / "table", deletes=False)
    claimed = location.format(tmp=tmp_path)
    forged = changed(maker, lambda metadata: metadata.update(location=claimed))
    with pytest.raises(ReadError, match="outside its root"):
        sk.open(forged, stay_below_root=True)
    moved = outside(Path(maker.metadata_location), tmp_path / "elsewhere")
    assert sk.open(str(moved)).scan().count() == 60
    with pytest.raises(ReadError, match=f"outside its root {tmp_path}/elsewhere"):
        sk.open(str(moved), stay_below_root=True)


# -- metadata that can't be true -----------------------------------------------------------------


_NUMBERS = itertools.count()


def changed(maker: Maker, change: Callable[[dict[str, Any]], object]) -> str:
    """Another metadata file of the same table."""
    metadata = json.loads(Path(maker.metadata_location).read_text())
    change(metadata)
    path = Path(maker.metadata_location).parent / f"changed-{next(_NUMBERS)}.metadata.json"
    path.write_text(json.dumps(metadata))
    return str(path)


def first_field(metadata: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = metadata["schemas"][0]["fields"][0]
    return found


UNREADABLE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a later version": (lambda m: m.update({"format-version": 4}), "4"),
    "no location": (lambda m: m.pop("location"), "location"),
    "no current schema": (lambda m: m.update({"current-schema-id": 77}), "77"),
    "an unknown type": (lambda m: first_field(m).update(type="nope"), "nope"),
    "no current snapshot": (
        lambda m: m.update({"current-snapshot-id": 5}),
        "5, but the metadata has no such",
    ),
    "no manifest list": (lambda m: [s.pop("manifest-list") for s in m["snapshots"]], "manifest-list"),
    "a bad name mapping": (
        lambda m: m["properties"].update({"schema.name-mapping.default": "{nope"}),
        "name mapping",
    ),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_metadata_that_cant_be_true_is_refused(name: str, tmp_path: Path) -> None:
    change, word = UNREADABLE[name]
    location = changed(make(tmp_path, deletes=False), change)
    with pytest.raises(FileError) as refused:
        sk.open(location)
    assert refused.value.path == location
    assert refused.value.hint
    assert word in refused.value.message


def test_a_name_for_a_snapshot_that_is_not_there_is_no_empty_table(tmp_path: Path) -> None:
    def lose(metadata: dict[str, Any]) -> None:
        metadata["refs"] |= {
            "lost": {"snapshot-id": 5, "type": "branch"},
            "gone": {"snapshot-id": 6, "type": "tag"},
        }

    lake = sk.open(changed(make(tmp_path, deletes=False), lose))
    assert lake.scan().count() == 60
    for name in ("lost", "gone"):
        with pytest.raises(CorruptFileError, match=f"'{name}' is .*no such snapshot"):
            lake.at(name)


def test_an_unknown_spec_id_is_named(tmp_path: Path) -> None:
    """With a filter, without one, and with manifests that an index has kept."""
    maker = make(tmp_path)
    sk.open(maker.metadata_location).index.build(engine="local")

    def unspecified(metadata: dict[str, Any]) -> None:
        metadata |= {"partition-specs": [{"spec-id": 7, "fields": []}], "default-spec-id": 7}

    location = changed(maker, unspecified)
    for question in (None, "id = 3", "p = 'a'"):
        with pytest.raises(SchemaError, match="partition spec 0") as refused:
            ask(location, question)
        assert refused.value.path
        assert refused.value.hint
    with pytest.raises(SchemaError, match="partition spec 0"):
        sk.open(location).plan_files("id = 3")
    with pytest.raises(SchemaError, match="partition spec 0"):
        sk.open(location).index.build(engine="local")


# -- manifests that lie --------------------------------------------------------------------------


def lying(root: Path, **how: Any) -> tuple[Maker, File]:
    """A table with one more file, of which its manifest says something else."""
    maker = make(root, deletes=False)
    (file,) = maker.files_of([{"id": n, "s": f"s{n}", "p": "a"} for n in range(100, 110)])
    said = replace(file, **{name: value(file) if callable(value) else value for name, value in how.items()})
    maker.written[said.path] = maker.written[file.path]
    maker.commit("append", [said], merge=False)
    return maker, said


@pytest.mark.parametrize("more", [5, -5])
def test_a_row_count_that_lies_is_found_when_the_file_is_read(more: int, tmp_path: Path) -> None:
    maker, file = lying(tmp_path, records=lambda file: file.records + more)
    with pytest.raises(CorruptFileError, match=f"10 rows, but the table recorded {10 + more}") as refused:
        ask(maker)
    assert refused.value.path == file.path
    # A file whose own footer is read is believed; nobody looks at those that no question needs.
    assert ask(maker, "id = 103") == [103]
    assert len(ask(maker, "p = 'b'")) == 30
    # Positions past what the table says are not lost: there is no way to tell which rows they mean.
    maker.delete_positions([(file.path, 9)])
    for question in (None, "id = 109", "id > 102"):
        with pytest.raises(CorruptFileError, match="the table recorded") as refused:
            ask(maker, question)
        assert (refused.value.path, bool(refused.value.hint)) == (file.path, True)


@pytest.mark.parametrize("more", [7, -7, None])
def test_a_size_that_lies_is_found(more: int | None, tmp_path: Path) -> None:
    maker, file = lying(tmp_path, size=lambda file: 0 if more is None else file.size + more)
    size = Path(file.path).stat().st_size
    for question in ("id = 103", None):
        wrong_size = f"{size:,} bytes, but the table recorded {file.size:,}"
        with pytest.raises(ReadError, match=wrong_size) as refused:
            ask(maker, question)
        assert refused.value.path == file.path
        assert "restore the file" in (refused.value.hint or "")
        assert "refresh" not in (refused.value.hint or "")
    assert len(ask(maker, "p = 'b'")) == 30
    report = sk.open(maker.metadata_location).index.build(engine="local")
    assert (report.indexed, [one.path for one in report.skipped]) == (4, [file.path])
    assert len(ask(maker, "p = 'b' and id < 40")) == 20
    with pytest.raises(ReadError):
        ask(maker, "id = 103")


@pytest.mark.parametrize("format", ["ORC", "AVRO", "PUFFIN"])
def test_a_file_of_another_format_is_refused_if_it_is_needed(format: str, tmp_path: Path) -> None:
    maker, file = lying(tmp_path, format=format)
    for question in (None, "id = 103", "p = 'a'"):
        with pytest.raises(FileError, match=f"{format}, but only Parquet") as refused:
            ask(maker, question)
        assert (refused.value.path, bool(refused.value.hint)) == (file.path, True)
    assert len(ask(maker, "p = 'b'")) == 30
    assert len(ask(maker, "id < 60")) == 60
    assert file.path in sk.open(maker.metadata_location).plan_files("id = 103").paths


@pytest.mark.parametrize("type", ["string", "int", "date", "boolean", "double", "decimal(9, 2)"])
def test_a_type_that_cant_be_widened_is_refused_where_it_is_read(type: str, tmp_path: Path) -> None:
    maker = make(tmp_path, deletes=False)
    location = changed(maker, lambda metadata: first_field(metadata).update(type=type))
    for index in (False, True):
        if index:
            sk.open(location).index.build(engine="local")
        with pytest.raises(SchemaError, match="int64") as refused:
            ask(location, "id is not null")
        assert (refused.value.column, bool(refused.value.hint)) == ("id", True)
        assert Path(refused.value.path or "").exists()
        assert sk.open(location).scan("p = 'a'", columns=["s"]).to_arrow().num_rows == 30


def test_a_manifest_that_holds_other_files_than_the_list_says(tmp_path: Path) -> None:
    maker = make(tmp_path, deletes=False)
    head = maker.head()
    assert head is not None
    one, other = [Path(manifest.path) for manifest in head.manifests][:2]
    maker.append([{"id": 1000, "s": "x", "p": "a"}], merge=False)
    small = Path(next(m.path for m in maker.head().manifests if len(m.live) == 1))  # type: ignore[union-attr]
    one.write_bytes(small.read_bytes())
    with pytest.raises(CorruptFileError, match="live files, but the manifest list recorded") as refused:
        ask(maker)
    assert refused.value.path == str(one)
    assert refused.value.hint
    assert other.exists()


# -- manifest lists that lie -----------------------------------------------------------------------


def rewritten_list(maker: Maker, manifests: list[Manifest]) -> Path:
    """The head's manifest list with other manifests."""
    head = maker.head()
    assert head is not None
    made = Path(maker.clerk.manifest_list(manifests, head.id, head.parent, head.sequence))
    return made.rename(head.location)


def blocks_end(path: Path) -> list[int]:
    """Where the header of a container ends, and every block but the last."""
    body, sync = path.read_bytes(), path.read_bytes()[-16:]
    ends = [at + 16 for at in range(len(body)) if body.startswith(sync, at)]
    return ends[:-1]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_manifest_list_that_is_cut_between_blocks_is_refused(version: int, tmp_path: Path) -> None:
    maker = make(tmp_path, version, deletes=False)
    maker.clerk.list_block = 1
    maker.append(some(60, 70), merge=False)
    head = maker.head()
    assert head is not None
    # Writers put what is new first: a cut takes what is old.
    path = rewritten_list(maker, [*reversed(head.manifests)])
    body = path.read_bytes()
    cuts = blocks_end(path)
    assert len(cuts) == len(head.manifests) == 3
    asked: list[Callable[[], object]] = [
        lambda: ask(maker),
        lambda: ask(maker, "id = 3"),
        lambda: sk.open(maker.metadata_location).scan().count(),
        lambda: sk.open(maker.metadata_location).plan_files("p = 'a'"),
        lambda: sk.open(maker.metadata_location).files,
    ]
    for cut in cuts:
        path.write_bytes(body[:cut])
        for question in asked:
            with pytest.raises(CorruptFileError, match="manifest list is truncated") as refused:
                question()
            assert (refused.value.path, bool(refused.value.hint)) == (str(path), True)
    path.write_bytes(body)
    assert len(ask(maker)) == 70


@pytest.mark.parametrize("version", [1, 2, 3])
def test_no_cut_of_a_list_or_a_manifest_loses_rows(version: int, tmp_path: Path) -> None:
    maker = make(tmp_path, version, deletes=version > 1)
    maker.clerk.list_block = 1
    maker.append(some(60, 62), merge=False)
    head = maker.head()
    assert head is not None
    # Early lists may leave counts out: then only the manifests themselves can tell.
    rewritten_list(maker, [replace(manifest, counted=True) for manifest in head.manifests])
    for path in [Path(head.location), *(Path(manifest.path) for manifest in head.manifests)]:
        body = path.read_bytes()
        for cut in {*blocks_end(path), *(len(body) * part // 10 for part in range(10)), len(body) - 1}:
            path.write_bytes(body[:cut])
            with pytest.raises(FileError) as refused:
                ask(maker)
            assert refused.value.path == str(path)
        path.write_bytes(body)


def test_a_list_that_lost_its_deletes_is_refused(tmp_path: Path) -> None:
    maker = make(tmp_path)
    wanted = ask(maker)
    maker.append([], merge=False)
    head = maker.head()
    assert head is not None
    assert any(manifest.content for manifest in head.manifests)
    rewritten_list(maker, [manifest for manifest in head.manifests if not manifest.content])
    with pytest.raises(CorruptFileError, match="delete files of the snapshot's parent"):
        ask(maker)
    rewritten_list(maker, [*head.manifests])
    assert ask(maker) == wanted


@pytest.mark.parametrize("totals", ["right", "none", "wrong"])
def test_a_list_that_is_empty_is_refused_where_the_snapshot_says_otherwise(
    totals: str, tmp_path: Path
) -> None:
    maker = make(tmp_path, deletes=False)
    maker.totals = totals
    maker.save()
    rewritten_list(maker, [])
    with pytest.raises(CorruptFileError, match="manifest list is truncated"):
        ask(maker)
    # Everything was taken out, and then nothing was put in: such a table is empty.
    maker = make(tmp_path / "emptied", deletes=False)
    maker.totals = totals
    maker.remove_files([one.file.path for one in maker.live()])
    assert ask(maker) == []
    maker.append([])
    assert maker.head().manifests == ()  # type: ignore[union-attr]
    assert ask(maker) == []


def test_totals_that_others_got_wrong_are_no_reason_to_refuse(tmp_path: Path) -> None:
    maker = make(tmp_path)
    maker.totals = "wrong"
    maker.remove_files([maker.live()[0].file.path])
    maker.rewrite_manifests()
    maker.append(some(60, 70))
    wanted = sorted(row["id"] for row in maker.rows())
    assert ask(maker) == wanted
    # Of a snapshot whose parent is gone, lists can't confirm what totals say.
    maker.expire(keep=1)
    assert ask(maker) == wanted
    for odd in ("9" * 5_000, "-7", "many", "²", ""):
        said = {"total-data-files": odd, "added-data-files": odd}
        location = changed(maker, lambda m, said=said: [s["summary"].update(said) for s in m["snapshots"]])
        assert ask(location) == wanted


def test_a_manifest_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    maker = make(tmp_path, deletes=False)
    one, *others = maker.head().manifests  # type: ignore[union-attr]
    path = rewritten_list(maker, [one, *others, one])
    for question in (None, "id = 3"):
        with pytest.raises(CorruptFileError, match="names a manifest twice") as refused:
            ask(maker, question)
        assert refused.value.path == str(path)
        assert one.path in refused.value.message


def test_a_data_file_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    maker = make(tmp_path, deletes=False)
    one, *others = maker.head().manifests  # type: ignore[union-attr]
    spare = tmp_path / "metadata" / "copy.avro"
    spare.write_bytes(Path(one.path).read_bytes())
    rewritten_list(maker, [one, *others, replace(one, path=str(spare))])
    twice = {entry.file.path for entry in one.live}
    for question in (None, "id = 3", "p = 'a'"):
        with pytest.raises(CorruptFileError, match="data file is listed twice") as refused:
            ask(maker, question)
        assert refused.value.path in twice
        assert one.path in refused.value.message
        assert str(spare) in refused.value.message
    with pytest.raises(CorruptFileError, match="data file is listed twice"):
        sk.open(maker.metadata_location).index.build(engine="local")


@pytest.mark.parametrize("odd", ["{path}", "file:{path}", "file://localhost{path}", "file:///.{path}"])
def test_a_data_file_under_two_spellings_is_refused(odd: str, tmp_path: Path) -> None:
    maker = Maker(tmp_path, [("id", "long")])
    (file,) = maker.files_of([{"id": 1}], files=1)
    again = replace(file, path=odd.format(path=file.place))
    maker.commit("append", [file])
    maker.commit("append", [again], merge=False)
    for question in (None, "id = 1"):
        with pytest.raises(CorruptFileError, match="data file is listed twice"):
            ask(maker, question)


# -- strict ----------------------------------------------------------------------------------------


def test_strict_refuses_to_keep_what_cant_be_judged(tmp_path: Path) -> None:
    maker = make(tmp_path, deletes=False)

    def unknown(metadata: dict[str, Any]) -> None:
        metadata["partition-specs"][0]["fields"][0]["transform"] = "zorder[3]"

    location = changed(maker, unknown)
    lake = sk.open(location)
    assert lake.scan("p = 'a'").count() == 30
    assert lake.plan_files("p = 'a'").filter_stats.unevaluable_specs in (0, 1)
    for refuse in (
        lambda: lake.plan_files("p = 'a'", strict=True),
        lambda: lake.scan("p = 'a'", strict=True).count(),
    ):
        with pytest.raises(SchemaError, match="can't be judged") as refused:
            refuse()
        assert refused.value.path == location
        assert "strict" in (refused.value.hint or "")
    # Of a predicate that the unknown field is not made of, everything can be told.
    assert lake.scan("id = 3", strict=True).count() == 1
    assert sk.open(maker.metadata_location).scan("p = 'a'", strict=True).count() == 30
