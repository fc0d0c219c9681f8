"""Thrift's compact protocol: declaration and guarded decoding of structures."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from itertools import repeat
from typing import Any, ClassVar, TypeAlias, TypeVar

from skipstone.errors import CorruptFileError

WireType: TypeAlias = tuple[int, Any]
_SHORT = 1024
# Beyond this size the structures of a list are counted while decoding; below, their number hardly matters.
_LONG = 64 * 1024
_LIST, _STRUCT = 15, 12

# Thrift's type numbers (thrift.Thrift.TType), spelled out so that importing this module imports no Thrift.
BOOL: WireType = (2, None)
I8: WireType = (3, None)
I32: WireType = (8, None)
I64: WireType = (10, None)
# Strings are read as bytes too: writers put invalid UTF-8 into names, bounds and keys.
BINARY: WireType = (11, "BINARY")


class Struct:
    """Base of all structures: optional fields are class attributes with the value ``None``.

    The C decoder creates each struct without arguments and sets the fields it reads. Slots would decode a
    tenth faster, but an absent field could not fall back to its class attribute.
    """

    thrift_spec: ClassVar[tuple[Any, ...]] = ()
    least: ClassVar[int] = 1
    """Minimum bytes of a struct in a list, with all required fields."""

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Struct)
            and type(self).__name__ == type(other).__name__
            and vars(self) == vars(other)
        )

    __hash__ = None  # type: ignore[assignment]

    def read(self, protocol: Any) -> None:
        """Fill this struct with the pure-Python decoder, used if Thrift's C extension is not built."""
        protocol.readStruct(self, self.thrift_spec)


class Union(Struct):
    """Base of unions; the decoder skips unknown variants and leaves the union empty."""

    @property
    def variant(self) -> str | None:
        """Name of the variant; None if it is unknown."""
        return next(iter(vars(self)), None)


S = TypeVar("S", bound=Struct)


def struct(cls: type[Struct]) -> WireType:
    """Declare a field that holds a nested struct."""
    return (12, [cls, cls.thrift_spec])


def list_of(element: WireType) -> WireType:
    """Declare a field that holds a list."""
    return (15, (*element, False))


def spec(*fields: tuple[int, str, WireType]) -> tuple[Any, ...]:
    """Lay out fields in ascending order for Thrift: a tuple indexed by field number."""
    slots: list[Any] = [None] * (fields[-1][0] + 1)
    for number, name, (wire, arguments) in fields:
        slots[number] = (number, wire, name, arguments, None)
    return tuple(slots)


def decode(cls: type[S], data: bytes, what: str, path: str | None = None, *, longest: int | None = None) -> S:
    """Decode one structure; ``what`` names it in errors, as in "footer".

    ``longest`` is the maximum number of elements of a list, if it is known.
    """
    return decode_prefix(cls, data, what, path, longest=longest)[0]


def decode_prefix(
    cls: type[S], data: bytes, what: str, path: str | None = None, *, longest: int | None = None
) -> tuple[S, int]:
    """Decode the structure at the start of ``data``, and return it with the number of bytes read.

    Hostile bytes raise CorruptFileError. Thrift's C decoder (0.25) bounds its recursion, also in skipped
    fields, and reads at least one byte per list element; the two limits keep it from allocating a string or
    list that the data can't fill. The rest is linear: an empty structure takes one byte here and 90 in
    memory, so long data may have no more structures than complete ones would fit in it.
    """
    limit = len(data)
    source = _Input(data, limit if longest is None else max(min(longest, limit), 1))
    target = cls()
    fields = cls.thrift_spec if limit <= _LONG else _bounded(cls.thrift_spec, limit)
    read, refusals = _thrift()
    try:
        if limit > _SHORT:
            with paused_gc():
                read(target, source, [cls, fields])
        else:  # pausing the collector costs more than decoding a page header
            read(target, source, [cls, fields])
    except StopIteration:
        message = f"{what} can't be decoded: more structures than {limit} bytes can hold"
        raise CorruptFileError(message, path=path) from None
    except refusals as error:
        reason = str(error) or ("unexpected end" if isinstance(error, EOFError) else type(error).__name__)
        raise CorruptFileError(f"{what} can't be decoded: {reason}", path=path) from error
    return target, source.trans.cstringio_buf.tell()


def decode_run(cls: type[S], data: bytes, start: int, count: int) -> tuple[list[S], int] | None:
    """Decode ``count`` consecutive structures in ``data``, and return them with their end.

    None if ``decode`` would refuse them; callers then use ``decode`` to raise the error.
    """
    limit = len(data)
    if count > limit // cls.least:
        return None
    source = _Input(data, limit)
    source.trans.cstringio_buf.seek(start)
    structures = [cls() for _ in range(count)]
    fields = cls.thrift_spec if limit <= _LONG else _bounded(cls.thrift_spec, limit)
    what = [cls, fields]
    read, refusals = _thrift()
    try:
        for structure in structures:
            read(structure, source, what)
    except StopIteration:
        return None
    except refusals:
        return None
    return structures, source.trans.cstringio_buf.tell()


class _Bytes:
    """The part of a transport that Thrift's C decoder uses."""

    __slots__ = ("cstringio_buf",)
    cstringio_buf: BytesIO

    def cstringio_refill(self, partial: bytes, length: int) -> BytesIO:  # noqa: ARG002
        raise EOFError


class _Input:
    """The part of a protocol that Thrift's C decoder uses, without the layers of its own classes."""

    __slots__ = ("container_length_limit", "string_length_limit", "trans")

    def __init__(self, data: bytes, longest: int) -> None:
        self.trans = _Bytes()
        self.trans.cstringio_buf = BytesIO(data)
        self.string_length_limit = len(data)
        self.container_length_limit = longest


def _bounded(fields: tuple[Any, ...], size: int) -> tuple[Any, ...]:
    """Limit the structures in lists of these fields to what ``size`` bytes can hold."""
    return tuple(
        entry if entry is None else (*entry[:3], _bounded_type(entry[1], entry[3], size), entry[4])
        for entry in fields
    )


def _bounded_type(kind: int, arguments: Any, size: int) -> Any:
    if kind == _LIST and arguments[0] == _STRUCT:
        cls, fields = arguments[1]
        inner = _bounded(fields, size)
        # The decoder creates each struct by calling its class, so this counts them without running Python
        # code.
        count = repeat(None, size // cls.least)
        counted = type(cls.__name__, (cls,), {"thrift_spec": inner, "__init__": count.__next__})
        return (_STRUCT, [counted, inner], arguments[2])
    if kind == _STRUCT:
        cls, fields = arguments
        return [cls, _bounded(fields, size)]
    return arguments


@contextmanager
def paused_gc() -> Iterator[None]:
    """Pause the garbage collector, which would walk a growing tree of live objects repeatedly."""
    pause = gc.isenabled()
    if pause:
        gc.disable()
    try:
        yield
    finally:
        if pause:
            gc.enable()


@cache
def _thrift() -> tuple[Callable[[Any, Any, Any], Any], tuple[type[Exception], ...]]:
    """Return the function that fills a struct from an ``_Input``, and its errors for invalid bytes."""
    from thrift.Thrift import TException

    # The C decoder raises the first six; the others come from the pure-Python one.
    refusals = (TException, EOFError, OverflowError, TypeError, MemoryError, ValueError)
    pure = (LookupError, AssertionError, RecursionError)
    try:
        from thrift.protocol.fastbinary import decode_compact
    except ImportError:
        return _read_slowly, refusals + pure
    return decode_compact, refusals


def _read_slowly(target: Struct, source: _Input, what: list[Any]) -> None:
    """Fill a struct without Thrift's C extension."""
    from thrift.protocol.TCompactProtocol import TCompactProtocol
    from thrift.transport.TTransport import TFileObjectTransport

    protocol = TCompactProtocol(
        TFileObjectTransport(source.trans.cstringio_buf),
        string_length_limit=source.string_length_limit,
        container_length_limit=source.container_length_limit,
    )
    protocol.readStruct(target, what[1])
