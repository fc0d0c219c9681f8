"""Spark's daemons, forked from one process that has imported what their workers need.

Spark starts a daemon for each kind of worker, and a daemon forks its workers. The first daemon leaves a
server behind that forks the later ones, with the streams and environment of the process that Spark started.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
from pathlib import Path

MODULES = (
    *("pandas", "pyarrow.dataset", "pyarrow.parquet", "obstore.store", "pyspark.worker"),
    *("pyspark.sql.worker.plan_data_source_read", "pyspark.sql.worker.write_into_data_source"),
    *("skipstone.spark.table_sink", "skipstone.predicate.spark", "skipstone.predicate.sql"),
)


def fork_remotely(address: str) -> bool:
    """Have a daemon forked and wait for its end; False if there is no server."""
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(address)
        except OSError:
            return False
        order = json.dumps([sys.argv, dict(os.environ), str(Path.cwd())]).encode()
        socket.send_fds(server, [len(order).to_bytes(4)], [0, 1, 2])
        server.sendall(order)
        server.recv(1)
    return True


def serve(address: str) -> None:
    """Fork daemons for as long as the first one lives."""
    first = os.getppid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        listener.settimeout(1)
        while os.getppid() == first:
            try:
                client, _ = listener.accept()
            except TimeoutError:
                continue
            if os.fork() == 0:
                listener.close()
                become_daemon(client)
            client.close()
    os._exit(0)


def become_daemon(client: socket.socket) -> None:
    client.setblocking(True)
    size, streams, _, _ = socket.recv_fds(client, 4, 3)
    with client.makefile("rb") as order:
        sys.argv[:], environment, folder = json.loads(order.read(int.from_bytes(size)))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    run_daemon()


def run_daemon() -> None:
    from pyspark.daemon import manager

    manager()
    os._exit(0)


def start_first(address: str) -> None:
    # Spark puts its Python code first as a ZIP archive, which each daemon would compile again.
    sys.path[:] = ["", *(path for path in sys.path[1:] if not path.endswith(".zip"))]
    # What has a thread can't be forked.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for module in MODULES:
        importlib.import_module(module)
    # A collection in a fork would copy every page of the modules.
    gc.collect()
    gc.freeze()
    if os.fork() == 0:
        serve(address)
    run_daemon()


if __name__ == "__main__":
    where = sys.argv.pop(1)
    if not fork_remotely(where):
        start_first(where)
