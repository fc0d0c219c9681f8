import io
import os
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest

from skipstone.errors import ReadError, SkipstoneError, UsageError
from skipstone.store.absolute import AbsoluteStore
from skipstone.store.local import LocalSource, resolve_directories_once
from skipstone.store.source import ByteRange, Source, open_source

DATA = bytes(range(256)) * 1_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some file.bin"
    path.write_bytes(DATA)
    return path


@pytest.fixture(
    params=["str", "path", "bytes path", "uri", "bytes", "memoryview", "arrow", "io", "raw", "native"]
)
def source(request: pytest.FixtureRequest, file: Path) -> Source:
    makers = {
        "str": lambda: str(file),
        "path": lambda: file,
        "bytes path": lambda: _BytesPath(file),
        "uri": file.as_uri,
        "bytes": lambda: DATA,
        "memoryview": lambda: memoryview(DATA),
        "arrow": lambda: pa.py_buffer(DATA),
        "io": lambda: io.BytesIO(DATA),
        "raw": lambda: _Trickle(DATA),
        "native": lambda: pa.BufferReader(DATA),
    }
    return open_source(makers[request.param]())


class _BytesPath(os.PathLike[bytes]):
    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> bytes:
        return os.fsencode(self.path)


class _Trickle(io.BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size or 0, 1_000))


def test_all_kinds_give_the_same_bytes(source: Source) -> None:
    assert source.size() == len(DATA)
    assert source.tail(100) == (DATA[-100:], len(DATA))
    assert source.tail(10**9) == (DATA, len(DATA))
    ranges = [ByteRange(200_000, 200_010), ByteRange(5, 5), ByteRange(0, 3), ByteRange(10, 20)]
    assert source.read_ranges(ranges) == [DATA[r.start : r.stop] for r in ranges]
    assert source.read_ranges([]) == []


def test_all_kinds_refuse_short_reads(source: Source) -> None:
    with pytest.raises(ReadError, match=r"bytes 255990-256010.*only 10 bytes"):
        source.read_ranges([ByteRange(len(DATA) - 10, len(DATA) + 10)])


def test_a_source_is_taken_as_it_is(file: Path) -> None:
    source = open_source(file)
    assert open_source(source) is source


def test_requests_and_bytes_are_counted(file: Path) -> None:
    source = open_source(file)
    source.tail(1_000)
    assert (source.counter.requests, source.counter.bytes) == (1, 1_000)
    source.read_ranges([ByteRange(0, 10), ByteRange(20, 30), ByteRange(200_000, 200_001)])
    assert (source.counter.requests, source.counter.bytes) == (3, 1_031)


def test_a_replaced_file_is_noticed(file: Path) -> None:
    source = open_source(file)
    source.tail(10)
    other = file.with_name("other")
    other.write_bytes(DATA)
    other.replace(file)
    with pytest.raises(ReadError, match="file changed while it was being read"):
        source.read_ranges([ByteRange(0, 1)])


def test_a_grown_file_is_noticed(file: Path) -> None:
    source = open_source(file)
    with file.open("ab") as out:
        out.write(b"x")
    with pytest.raises(ReadError, match="file changed"):
        source.tail(1)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="no such file") as info:
        open_source(tmp_path / "nothing.parquet")
    assert info.value.path == str(tmp_path / "nothing.parquet")


def test_a_deleted_file_is_missing(file: Path) -> None:
    source = open_source(file)
    file.unlink()
    with pytest.raises(ReadError, match="no such file"):
        source.tail(1)


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"directory.*skipstone.open"):
        open_source(tmp_path)


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ReadError, match="regular file"):
        open_source(tmp_path / "pipe")


def test_permission_denied(file: Path) -> None:
    file.chmod(0)
    if os.geteuid():
        with pytest.raises(ReadError, match="permission denied"):
            open_source(file)
        return
    # Root may read everything, so a child becomes somebody else, in a folder that anybody may enter.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        closed = Path(folder) / "closed.parquet"
        closed.write_bytes(b"PAR1")
        closed.chmod(0)
        child = os.fork()
        if not child:
            os.setuid(65534)
            try:
                open_source(closed)
            except ReadError as error:
                os._exit(0 if "permission denied" in str(error) else 2)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0


def test_a_name_with_a_null_byte() -> None:
    with pytest.raises(ReadError):
        open_source("a\0b")


def test_an_unknown_scheme_names_the_known_ones() -> None:
    with pytest.raises(ReadError, match=r"'ftp'.*s3"):
        open_source("ftp://host/file")


def test_something_else_is_refused_with_a_hint() -> None:
    with pytest.raises(UsageError, match=r"int.*pass a path"):
        open_source(3)


def test_a_text_file_is_refused_with_a_hint(file: Path) -> None:
    with file.open(encoding="latin-1") as text, pytest.raises(ReadError, match="'rb'"):
        open_source(text).tail(10)


def test_a_file_object_keeps_its_position(file: Path) -> None:
    with file.open("rb") as stream:
        stream.seek(17)
        open_source(stream).tail(10)
        assert stream.tell() == 17


def test_a_closed_file_object(file: Path) -> None:
    stream = file.open("rb")
    stream.close()
    with pytest.raises(ReadError, match="closed"):
        open_source(stream).tail(10)


def test_no_descriptor_stays_open(file: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    sources = [LocalSource(str(file)) for _ in range(50)]
    for source in sources:
        source.tail(1)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_local_reads_import_no_object_store(file: Path) -> None:
    code = (
        "import sys; from skipstone.store.source import open_source; open_source(sys.argv[1]).tail(4); "
        "assert 'obstore' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(file)], check=True, timeout=600)


def test_a_path_with_a_nul_is_outside_every_root(tmp_path: Path) -> None:
    """Such a path is that of no file, and its check is an error of ours."""
    store = AbsoluteStore(str(tmp_path), root=str(tmp_path))
    for context in (nullcontext, resolve_directories_once):
        with context(), pytest.raises(ReadError, match="outside its root"):
            store.open(f"{tmp_path}/x\0.parquet")
    with pytest.raises(SkipstoneError):
        AbsoluteStore(str(tmp_path)).open(f"{tmp_path}/x\0.parquet").size()
