"""Thrift's compact protocol: how structures are declared, and the one guarded way to decode them."""

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
# Beyond this the structures of a list are counted while they are decoded; below, their number hardly matters.
_LONG = 64 * 1024
_LIST, _STRUCT = 15, 12

# Thrift's type numbers (thrift.Thrift.TType), spelled out so that importing this module imports no Thrift.
BOOL: WireType = (2, None)
I8: WireType = (3, None)
I32: WireType = (8, None)
I64: WireType = (10, None)
# Text is read as bytes as well: writers put invalid UTF-8 into names, bounds and keys.
BINARY: WireType = (11, "BINARY")


class Struct:
    """Base of all structures: a class attribute ``None`` per declared field that the format lets be absent.

    The C decoder makes each struct by a call without arguments and sets the fields it finds. Slots would
    decode a tenth faster, but an absent field could not fall through to its class, and reads are many.
    """

    thrift_spec: ClassVar[tuple[Any, ...]] = ()
    least: ClassVar[int] = 1
    """The fewest bytes that one in a list can take, with all that the format requires of it."""

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
        """Fill this struct with the pure-Python decoder, used where Thrift's C extension is not built."""
        protocol.readStruct(self, self.thrift_spec)


class Union(Struct):
    """Base of unions; a variant newer than this code is skipped by the decoder and leaves it empty."""

    @property
    def variant(self) -> str | None:
        """The name of the variant, None when it is not known here."""
        return next(iter(vars(self)), None)


S = TypeVar("S", bound=Struct)


def struct(cls: type[Struct]) -> WireType:
    """Declare a field that holds a nested struct."""
    return (12, [cls, cls.thrift_spec])


def list_of(element: WireType) -> WireType:
    """Declare a field that holds a list."""
    return (15, (*element, False))


def spec(*fields: tuple[int, str, WireType]) -> tuple[Any, ...]:
    """Lay fields, given in ascending order, out as Thrift wants them: a tuple indexed by field number."""
    slots: list[Any] = [None] * (fields[-1][0] + 1)
    for number, name, (wire, arguments) in fields:
        slots[number] = (number, wire, name, arguments, None)
    return tuple(slots)


def decode(cls: type[S], data: bytes, what: str, path: str | None = None, *, longest: int | None = None) -> S:
    """Decode one structure; ``what`` names it in the error, as in "footer".

    ``longest`` is how many elements a list can have at most, where that is known from elsewhere.
    """
    return decode_prefix(cls, data, what, path, longest=longest)[0]


def decode_prefix(
    cls: type[S], data: bytes, what: str, path: str | None = None, *, longest: int | None = None
) -> tuple[S, int]:
    """Decode the structure that ``data`` begins with, and say how many bytes it took.

    Hostile bytes end in CorruptFileError. Thrift's C decoder (0.25) bounds its own recursion, also in
    fields it skips, and reads at least one byte per list element; the two limits keep it from allocating
    a string or list that the data can't fill. What remains is linear: an empty structure is one byte here
    and 90 in memory, so long data may hold no more structures than complete ones would fit in it.
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
        else:  # a page's header is not worth the pause
            read(target, source, [cls, fields])
    except StopIteration:
        message = f"the {what} can't be decoded: more structures than its {limit} bytes can hold"
        raise CorruptFileError(message, path=path) from None
    except refusals as error:
        reason = str(error) or ("it ends too early" if isinstance(error, EOFError) else type(error).__name__)
        raise CorruptFileError(f"the {what} can't be decoded: {reason}", path=path) from error
    return target, source.trans.cstringio_buf.tell()


def decode_run(cls: type[S], data: bytes, start: int, count: int) -> tuple[list[S], int] | None:
    """Decode ``count`` structures that stand in ``data`` one after the other, and say where they end.

    None where ``decode`` would refuse them. Call it on bytes that are refused by ``decode`` otherwise.
    """
    limit = len(data)
    if count > limit // cls.least:
        return None
    source = _Input(data, limit)
    source.trans.cstringio_buf.seek(start)
    found = [cls() for _ in range(count)]
    fields = cls.thrift_spec if limit <= _LONG else _bounded(cls.thrift_spec, limit)
    what = [cls, fields]
    read, refusals = _thrift()
    try:
        for one in found:
            read(one, source, what)
    except StopIteration:
        return None
    except refusals:
        return None
    return found, source.trans.cstringio_buf.tell()


class _Bytes:
    """What Thrift's C decoder asks a transport for."""

    __slots__ = ("cstringio_buf",)
    cstringio_buf: BytesIO

    def cstringio_refill(self, partial: bytes, length: int) -> BytesIO:  # noqa: ARG002
        raise EOFError


class _Input:
    """What Thrift's C decoder asks a protocol for, without the layers of its own classes."""

    __slots__ = ("container_length_limit", "string_length_limit", "trans")

    def __init__(self, data: bytes, longest: int) -> None:
        self.trans = _Bytes()
        self.trans.cstringio_buf = BytesIO(data)
        self.string_length_limit = len(data)
        self.container_length_limit = longest


def _bounded(fields: tuple[Any, ...], size: int) -> tuple[Any, ...]:
    """The same fields, with no more structures in lists than ``size`` bytes can hold."""
    return tuple(
        entry if entry is None else (*entry[:3], _bounded_type(entry[1], entry[3], size), entry[4])
        for entry in fields
    )


def _bounded_type(kind: int, arguments: Any, size: int) -> Any:
    if kind == _LIST and arguments[0] == _STRUCT:
        cls, fields = arguments[1]
        inner = _bounded(fields, size)
        # The decoder makes each struct by calling its class, so this counts them, without a line of Python.
        count = repeat(None, size // cls.least)
        counted = type(cls.__name__, (cls,), {"thrift_spec": inner, "__init__": count.__next__})
        return (_STRUCT, [counted, inner], arguments[2])
    if kind == _STRUCT:
        cls, fields = arguments
        return [cls, _bounded(fields, size)]
    return arguments


@contextmanager
def paused_gc() -> Iterator[None]:
    """Keep the collector from walking a growing tree of live objects again and again."""
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
    """What fills a struct from an ``_Input``, and what it raises for bytes that are no such struct."""
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
    """Fill a struct where Thrift's C extension is not built."""
    from thrift.protocol.TCompactProtocol import TCompactProtocol
    from thrift.transport.TTransport import TFileObjectTransport

    protocol = TCompactProtocol(
        TFileObjectTransport(source.trans.cstringio_buf),
        string_length_limit=source.string_length_limit,
        container_length_limit=source.container_length_limit,
    )
    protocol.readStruct(target, what[1])
