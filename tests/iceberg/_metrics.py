"""What a writer tells manifests about a file: everything, cut values, counts only, some of it, nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.iceberg._types import Field, leaves, numbers, to_bytes

CUT = 16
MODES = ("full", "truncate", "counts", "partial", "none")


@dataclass
class Metrics:
    """Maps by field id; None where the writer has left the map out."""

    sizes: dict[int, int] | None = None
    values: dict[int, int] | None = field(default_factory=dict)
    nulls: dict[int, int] | None = field(default_factory=dict)
    nans: dict[int, int] | None = field(default_factory=dict)
    lower: dict[int, bytes] | None = field(default_factory=dict)
    upper: dict[int, bytes] | None = field(default_factory=dict)


def measure(
    fields: Iterable[Field], columns: dict[int, Sequence[Any]], mode: str, rng: random.Random
) -> Metrics:
    """The metrics of a file in one of the modes."""
    found = Metrics()
    if mode == "none":
        return Metrics(None, None, None, None, None, None)
    assert found.values is not None
    assert found.nulls is not None
    assert found.nans is not None
    assert found.lower is not None
    assert found.upper is not None
    for column in fields:
        for id, type, values, repeated in leaves(column, columns[column.id]):
            if mode == "partial" and rng.random() < 0.3:
                continue
            present = [v for v in values if v is not None]
            numbers_only = [v for v in present if v == v]
            found.values[id] = len(values)
            found.nulls[id] = len(values) - len(present)
            if type in ("float", "double"):
                found.nans[id] = len(present) - len(numbers_only)
            if mode == "counts" or repeated or not numbers_only:
                continue
            low, high = _ends(type, numbers_only, mode, rng)
            if low is not None:
                found.lower[id] = to_bytes(type, low)
            if high is not None:
                found.upper[id] = to_bytes(type, high)
    if mode == "partial":
        for name in ("values", "nulls", "nans", "lower", "upper"):
            if rng.random() < 0.25:
                setattr(found, name, None)
            else:
                kept = {id: v for id, v in getattr(found, name).items() if rng.random() < 0.8}
                setattr(found, name, kept)
    if mode == "counts" and rng.random() < 0.5:
        found.lower = found.upper = None
    found.sizes = {id: 10 + rng.randrange(99) for id in found.values or {}}
    return found


def _ends(type: str, values: Sequence[Any], mode: str, rng: random.Random) -> tuple[Any, Any]:
    if type == "string":
        low, high = min(values, key=str.encode), max(values, key=str.encode)
    else:
        low, high = min(values), max(values)
    if type in ("float", "double"):  # writers give a zero either sign
        low = rng.choice([0.0, -0.0]) if low == 0 else low
        high = rng.choice([0.0, -0.0]) if high == 0 else high
        return (low if math.isfinite(low) or rng.random() < 0.5 else None), high
    if mode == "full" or type not in ("string", "binary"):
        return low, high
    if type == "string" and rng.random() < 0.2:  # some writers cut bytes, in the midst of a character too
        low, high = low.encode(), high.encode()
    return low[:CUT], _cut_above(high)


def _cut_above(value: Any) -> Any:
    """The least value of sixteen characters or bytes that is not below; None if there is none."""
    if len(value) <= CUT:
        return value
    cut = value[:CUT]
    while cut:
        last = cut[-1]
        if isinstance(last, int):
            if last < 255:
                return cut[:-1] + bytes([last + 1])
        elif last < "\U0010ffff":
            step = ord(last) + 1
            return cut[:-1] + chr(0xE000 if 0xD800 <= step <= 0xDFFF else step)
        cut = cut[:-1]
    return None


def decimal_bytes(type: str) -> int:
    """How many bytes Avro and Parquet give a decimal of this precision."""
    top = 10 ** numbers(type)[0] - 1
    return (top.bit_length() + 8) // 8
