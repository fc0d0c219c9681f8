"""Partition folders as Spark names them: the inverse of what :mod:`skipstone.lake.hive` reads."""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Sequence

from skipstone.errors import UsageError

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""What stands for NULL and for the empty string, which folders can't tell apart."""

# Spark's list, and NUL, which Spark leaves as it is and no file system takes.
_UNSAFE = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f{\[\]^]")


def partition_folder(names: Sequence[str], values: Sequence[object]) -> str:
    """The folder of one partition, relative to the lake; "" without columns.

    >>> partition_folder(["a", "b", "c"], [1, "x/y", None])
    'a=1/b=x%2Fy/c=__HIVE_DEFAULT_PARTITION__'
    """
    pairs = zip(names, values, strict=True)
    return "/".join(f"{escape(name)}={_raw(name, value)}" for name, value in pairs)


def escape(text: str) -> str:
    """``text`` with ``%XX`` for characters that paths, Hive or shells take for something else."""
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _raw(name: str, value: object) -> str:
    text = _text(name, value)
    return escape(text) if text else NULL_FOLDER


def _text(name: str, value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return format(value, "f")
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.isoformat()
    raise UsageError(
        f"a {type(value).__name__} names no partition",
        column=name,
        hint="partition by strings, booleans, whole numbers, dates or decimals",
    )
