"""Monotone functions of a column, which the judge applies to its bounds.

A transform maps *bounds* forward, never a literal backward: if ``f`` is monotone on the entire type,
``f(min) <= f(v) <= f(max)``. If a bound overflows the output type, the result is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from skipstone.core.domain.keys import Kind, is_text, key_space

Array = np.ndarray[Any, Any]
Keys = Array | list[bytes | None]
"""Bounds of N units: numbers, or bytes with None if unknown."""

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DAY = 86_400


@runtime_checkable
class Transform(Protocol):
    """A monotone function: its output type, its direction, and its effect on bounds."""

    @property
    def out(self) -> pa.DataType:
        """Type of the result."""

    @property
    def decreasing(self) -> bool:
        """Whether a larger input has a smaller result."""

    def forward(self, keys: Keys) -> tuple[Keys, Array]:
        """Map keys; returns the results and a mask of the known ones."""


def _fits(type: pa.DataType, keys: Array) -> Array:
    space = key_space(type)
    if space.kind is not Kind.INT:
        return ~np.isnan(keys)
    return np.asarray((keys >= space.low) & (keys <= space.high))


@dataclass(frozen=True, slots=True)
class Scale:
    """``key * times + plus`` in integers: shifts, unit changes, decimal rescales, negation."""

    out: pa.DataType
    times: int = 1
    plus: int = 0
    fits: pa.DataType | None = None
    """Type of the computation if it is narrower than ``out``; results outside of it are unknown."""

    @property
    def decreasing(self) -> bool:
        return self.times < 0

    def forward(self, keys: Keys) -> tuple[Keys, Array]:
        assert isinstance(keys, np.ndarray)
        # The input is checked against exact limits, so the product can't overflow.
        low, high = self._limits()
        ok = np.asarray((keys >= low) & (keys <= high))
        mapped = np.where(ok, keys, 0).astype(np.int64) * self.times + self.plus
        return np.where(ok, mapped, 0).astype(key_space(self.out).dtype), ok

    def _limits(self) -> tuple[int, int]:
        """Range of inputs whose result fits the output type and 64 bits."""
        space = key_space(self.fits or self.out)
        floor, ceiling = max(space.low, -(2**63)), min(space.high, 2**63 - 1)
        ends = (floor - self.plus, ceiling - self.plus)
        ends = (max(ends[0], -(2**63)), min(ends[1], 2**63 - 1))
        if self.times < 0:
            ends = (ends[1], ends[0])
        return -((-ends[0]) // self.times), ends[1] // self.times


@dataclass(frozen=True, slots=True)
class ToFloat:
    """Conversion of an integer or narrow decimal to double, rounded to nearest, or a shift of a float."""

    out: pa.DataType
    scale: int = 0
    plus: float = 0.0
    negate: bool = False

    @property
    def decreasing(self) -> bool:
        return self.negate

    def forward(self, keys: Keys) -> tuple[Keys, Array]:
        assert isinstance(keys, np.ndarray)
        if self.scale:
            # Correctly rounded like a decimal-to-double cast, unlike a division of rounded doubles.
            mapped = np.array([int(k) / 10**self.scale for k in keys], dtype=np.float64)
        else:
            mapped = keys.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            mapped = (-mapped if self.negate else mapped) + self.plus
        return mapped, _fits(self.out, mapped)


class _Increasing:
    __slots__ = ()

    @property
    def decreasing(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Same(_Increasing):
    """A cast that preserves keys, such as int32 to int64 or float to double."""

    out: pa.DataType

    def forward(self, keys: Keys) -> tuple[Keys, Array]:
        if isinstance(keys, list):
            return keys, np.ones(len(keys), dtype=bool)
        return keys.astype(key_space(self.out).dtype), _fits(self.out, keys)


@dataclass(frozen=True, slots=True)
class Floor(_Increasing):
    """A time rounded down to a multiple of ``step`` keys, ``offset`` keys after the epoch.

    With ``index`` the result is the number of the step (a timestamp to a date) instead of its start.
    """

    out: pa.DataType
    step: int
    offset: int = 0
    index: bool = False

    def forward(self, keys: Keys) -> tuple[Keys, Array]:
        assert isinstance(keys, np.ndarray)
        info = np.iinfo(np.int64)
        ok = (keys > info.min + self.step + abs(self.offset)) & (keys < info.max - abs(self.offset))
        steps = (np.where(ok, keys, 0) + self.offset) // self.step
        mapped = steps if self.index else steps * self.step - self.offset
        return mapped, np.asarray(ok & _fits(self.out, mapped))


@dataclass(frozen=True, slots=True)
class Calendar(_Increasing):
    """The year of a time, or a time rounded down to its year, quarter or month."""

    out: pa.DataType
    per_day: int
    months: int
    offset: int = 0
    index: bool = False

    def forward(self, keys: Keys) -> tuple[Keys, Array]:
        assert isinstance(keys, np.ndarray)
        limit = 3_000_000 * self.per_day  # years ±8,000, well inside 64 bits for every unit
        ok = (keys > max(-limit, -(2**62))) & (keys < min(limit, 2**62))
        days = (np.where(ok, keys, 0) + self.offset) // self.per_day
        months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
        starts = months // self.months * self.months
        if self.index:
            mapped = starts // 12 + 1970
        else:
            first = starts.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
            mapped = first * self.per_day - self.offset
        return mapped, np.asarray(ok & _fits(self.out, mapped))


@dataclass(frozen=True, slots=True)
class Prefix(_Increasing):
    """The first ``length`` characters of a string, or bytes of a binary."""

    out: pa.DataType
    length: int

    def forward(self, keys: Keys) -> tuple[Keys, Array]:
        assert isinstance(keys, list)
        cut = self._characters if is_text(self.out) else self._bytes
        mapped = [None if k is None else cut(k) for k in keys]
        return mapped, np.array([m is not None for m in mapped], dtype=bool)

    def _bytes(self, key: bytes) -> bytes | None:
        return key[: self.length]

    def _characters(self, key: bytes) -> bytes | None:
        try:
            text = key.decode()
        except UnicodeDecodeError as error:
            # A truncated bound can end inside a character; the characters before it may suffice.
            text = key[: error.start].decode()
            if len(text) < self.length:
                return None
        return text[: self.length].encode()
