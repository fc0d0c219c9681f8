"""The server on loopback, a table that only its index can prune, and a client."""

from __future__ import annotations

import hashlib
import io
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa

import skipstone as sk
from skipstone.serve.access import Limits
from skipstone.serve.app import make_server
from skipstone.serve.records import Log

FILES, ROWS = 8, 400


def rows_of(number: int) -> pa.Table:
    """Rows of one file: no bounds of ``key`` or ``v`` tell the files apart.

    Keys are scattered over all files. Values of ``v`` have a gap in each file, between two of its pages.
    """
    keys = [hashlib.md5(f"{number}-{row}".encode()).hexdigest() for row in range(ROWS)]
    keys[0], keys[1] = "0" * 32, "f" * 32
    low, half = 1_000 * number + 500, ROWS // 2
    v = np.concatenate([np.linspace(0, low, half), np.linspace(low + 600, 10_000, half)]).astype(np.int64)
    return pa.table(
        {
            "key": keys,
            "v": v,
            "f": pa.array([float("nan") if row % 50 == 0 else float(row) for row in range(ROWS)]),
            "n": pa.array([None if row % 7 == 0 else row for row in range(ROWS)], pa.int32()),
            "part": pa.array([number % 4] * ROWS, pa.int32()),
        }
    )


def make_table(root: Path) -> Path:
    """A warehouse with the table ``db.events`` and its index."""
    warehouse = root / "warehouse"
    catalog = sk.catalog(f"{warehouse}/")
    table = catalog.create_table(
        "db.events", rows_of(0).schema, partition_by=["part"], properties=_SMALL_PAGES
    )
    for number in range(FILES):
        table.table.append(rows_of(number))
    catalog.open("db.events").index.build(blooms=["key"], values=True, engine="local")
    return warehouse


_SIZES = {"page-row-limit": "20", "page-size-bytes": "64", "dict-size-bytes": "1"}
_SMALL_PAGES = {f"write.parquet.{name}": value for name, value in _SIZES.items()}


def make_changed(root: Path, deleted: list[str]) -> Path:
    """A warehouse with the keyed table ``db.changed``: deleted rows, two partition specs, the tag ``before``.

    Its files are those of ``db.events``, half of them under each spec; the tag is older than the deletes.
    """
    warehouse = root / "changed"
    catalog = sk.catalog(f"{warehouse}/")
    table = catalog.create_table(
        "db.changed", rows_of(0).schema, key=["key"], partition_by=["part"], properties=_SMALL_PAGES
    )
    for number in range(FILES):
        if number == FILES // 2:
            with table.table.update_spec() as update:
                update.remove_field(table.table.spec().fields[0].name)
        rows = rows_of(number)
        ends = [f"{end * 31}{number}" for end in "0f"]
        keys = pa.array([*ends, *rows["key"].to_pylist()[2:]])
        table.table.append(
            rows.set_column(0, rows.schema.field(0), keys).cast(table.table.schema().as_arrow())
        )
    table.refresh()
    table.create_tag("before")
    assert table.delete(keys=deleted).deleted == len(deleted)
    catalog.open("db.changed").index.build(blooms=["key"], values=True, engine="local")
    return warehouse


def write_tokens(path: Path, **rights: dict[str, list[str]]) -> Path:
    """A token file; the token of each name is the name itself."""
    tokens = [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "rights": mine}
        for name, mine in rights.items()
    ]
    path.write_text(json.dumps({"tokens": tokens}))
    return path


class Running:
    """A server that runs."""

    def __init__(self, uri: str, log: io.StringIO, server: Any) -> None:
        self.uri, self._log, self.server = uri, log, server

    def client(self, token: str | None = None) -> httpx.Client:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.uri, headers=headers, timeout=60, trust_env=False, verify=False)

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.getvalue().splitlines()]


@contextmanager
def serving(
    warehouse: Path | None = None, lakes: dict[str, str] | None = None, **options: Any
) -> Iterator[Running]:
    log = io.StringIO()
    limits = Limits(**{"rate": 10_000.0, **options.pop("limits", {})})
    catalog = options.pop("catalog", None)
    if warehouse is not None:
        catalog = sk.catalog(f"{warehouse}/").iceberg
    server = make_server(catalog, lakes, port=0, limits=limits, log=Log(log), **options)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    scheme = "https" if server.config.is_ssl else "http"
    try:
        yield Running(f"{scheme}://127.0.0.1:{port}", log, server)
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
