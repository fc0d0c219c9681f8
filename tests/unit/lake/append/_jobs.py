"""Jobs that append to a store, and what they leave there."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.lake import append as sweep
from skipstone.lake import records
from skipstone.lake.append import Append, Lease, staged_as
from skipstone.lake.records import (
    lease_key,
    list_settled,
    publish_key,
    stage_key,
)
from skipstone.store.store import ListedFile, Store

KINDS = ["local", "memory"]
HOUR = 3600.0


def parquet(*values: int) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"a": pa.array(values, pa.int64())}), out)
    return out.getvalue()


def stage(append: Append, count: int = 3, first: int = 0) -> list[str]:
    keys = [f"day={n % 2}/part-{n}-{append.job}.parquet" for n in range(count)]
    for number, key in enumerate(keys):
        append.stage.write(staged_as(key), [parquet(first + number)])
    return keys


def publish(store: Store, count: int = 1, **choice: Any) -> str:
    append = Append.begin(store)
    append.publish(stage(append, count), **choice)
    return append.job


def keys(store: Store) -> list[str]:
    return [entry.key for entry in store.list()]


def visible(store: Store) -> list[str]:
    return [entry.key for entry in list_settled(store) if not entry.key.startswith("_")]


def leases() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("skipstone-lease")]


def aged(monkeypatch: pytest.MonkeyPatch, ages: dict[str, float]) -> None:
    """Let files whose keys end so be so many seconds older."""
    real = records.modified

    def older(entry: ListedFile) -> float | None:
        told = real(entry)
        extra = [age for end, age in ages.items() if entry.key.endswith(end)]
        return told if told is None else told - sum(extra)

    for module in (records, sweep):
        monkeypatch.setattr(module, "modified", older)


# -- reading -------------------------------------------------------------------------------------


def half(store: Store) -> str:
    """A job amid its publishing."""
    append = Append.begin(store)
    names = stage(append)
    store.write(publish_key(append.job), [json.dumps({"keys": names}).encode()])
    store.move(f"{stage_key(append.job)}/{staged_as(names[0])}", names[0])
    append._renewal.end()
    return append.job


class Counted:
    """A store that counts the requests of listings."""

    def __init__(self, below: Store) -> None:
        self._below = below
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    def list(self) -> Any:
        self.asked.append("list")
        return self._below.list()

    def list_prefix(self, prefix: str) -> Any:
        self.asked.append(prefix)
        return self._below.list_prefix(prefix)


# -- debris and leases ---------------------------------------------------------------------------


def gone_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def sign(store: Store, job: str, **change: Any) -> None:
    """Let a job be somebody else's."""
    told = json.loads(Lease.of().encode())
    store.write(lease_key(job), [json.dumps({**told, **change}).encode()])
