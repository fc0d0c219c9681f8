"""Thrift's compact protocol: how structures are declared, and the one guarded way to decode them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, ClassVar, TypeAlias, TypeVar

from skipstone.errors import CorruptFileError

WireType: TypeAlias = tuple[int, Any]
_SHORT = 1024
_NO_PAUSE = nullcontext()

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

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

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


def decode(cls: type[S], data: bytes, what: str, path: str | None = None) -> S:
    """Decode one structure; ``what`` names it in the error, as in "footer"."""
    return decode_prefix(cls, data, what, path)[0]


def decode_prefix(cls: type[S], data: bytes, what: str, path: str | None = None) -> tuple[S, int]:
    """Decode the structure that ``data`` begins with, and say how many bytes it took.

    Hostile bytes end in CorruptFileError. Thrift's C decoder (0.25) bounds its own recursion, also in
    fields it skips, and reads at least one byte per list element; the two limits keep it from allocating
    a string or list that the data can't fill. What remains is linear (90 bytes per byte seen).
    """
    protocol_class, transport_class, refusals = _thrift()
    transport = transport_class(data)
    limit = len(data)
    protocol = protocol_class(transport, string_length_limit=limit, container_length_limit=limit)
    target = cls()
    fast = protocol._fast_decode
    try:
        # A page's header is not worth the pause.
        with paused_gc() if limit > _SHORT else _NO_PAUSE:
            if fast is None:
                target.read(protocol)
            else:
                fast(target, protocol, [cls, cls.thrift_spec])
    except refusals as error:
        reason = str(error) or ("it ends too early" if isinstance(error, EOFError) else type(error).__name__)
        raise CorruptFileError(f"the {what} can't be decoded: {reason}", path=path) from error
    return target, transport.cstringio_buf.tell()


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
def _thrift() -> tuple[Any, Any, tuple[type[Exception], ...]]:
    from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
    from thrift.Thrift import TException
    from thrift.transport.TTransport import TMemoryBuffer

    # The C decoder raises the first five; the others come from the pure-Python one.
    refusals = (TException, EOFError, OverflowError, TypeError, MemoryError)
    pure = (ValueError, LookupError, AssertionError, RecursionError)
    return TCompactProtocolAccelerated, TMemoryBuffer, refusals + pure
