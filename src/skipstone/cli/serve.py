"""``skipstone serve``: a server that plans scans for Iceberg clients, and answers questions about lakes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from skipstone.cli.options import CATALOG_VARIABLE, SourceOptions, grouped, key_values
from skipstone.cli.output import guarded

_access = partial(typer.Option, rich_help_panel="Access")
_limit = partial(typer.Option, rich_help_panel="Limits")


@grouped
def serve(
    lake: Annotated[
        list[str] | None,
        typer.Option(
            "--lake", metavar="NAME=PATH", help="Directory of Parquet files to serve under NAME; repeatable."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, metavar="N", help="Port to listen on.")
    ] = 8181,
    token_file: Annotated[
        Path | None,
        _access(
            "--token-file",
            metavar="FILE",
            help="JSON file of tokens and their rights. Without it only this machine can connect.",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, _access("--tls-cert", metavar="FILE", help="Certificate chain, in PEM.")
    ] = None,
    tls_key: Annotated[
        Path | None, _access("--tls-key", metavar="FILE", help="Key of the certificate, in PEM.")
    ] = None,
    trust_paths: Annotated[
        bool,
        _access("--trust-paths", help="Accept links and table paths that point outside their directories."),
    ] = False,
    rate: Annotated[
        float, _limit("--rate", min=0.1, metavar="N", help="Requests per second of one caller.")
    ] = 100.0,
    time_limit: Annotated[
        float, _limit("--time-limit", min=0.1, metavar="SECONDS", help="Maximum time to answer a request.")
    ] = 30.0,
    async_after: Annotated[
        float | None,
        _limit(
            "--async-after",
            min=0.0,
            metavar="SECONDS",
            help="Continue longer plans asynchronously; pyiceberg and Polars can't wait for these.",
        ),
    ] = None,
    max_body: Annotated[
        int, _limit("--max-body", min=1024, metavar="BYTES", help="Largest body of a request.")
    ] = 1 << 20,
    *,
    source: SourceOptions,
) -> None:
    """Serve a catalog with scan planning (Iceberg REST), and a JSON API for lakes and tables.

    Runs until it is interrupted. Requests are logged to standard error, one JSON line each.
    """
    with guarded():
        import gc
        import os

        from skipstone.errors import require

        require("starlette", "uvicorn")
        from skipstone.serve.access import Limits
        from skipstone.serve.app import make_server, run

        named = source.catalog or source.catalog_property or os.environ.get(CATALOG_VARIABLE)
        if named:
            require("pyiceberg")
        limits = Limits(body=max_body, seconds=time_limit, submit_after=async_after, rate=rate)
        server = make_server(
            source.open_catalog().iceberg if named else None,
            key_values(lake, "--lake"),
            host=host,
            port=port,
            token_file=None if token_file is None else str(token_file),
            tls_cert=None if tls_cert is None else str(tls_cert),
            tls_key=None if tls_key is None else str(tls_key),
            limits=limits,
            stay_below_root=not trust_paths,
            storage_options=key_values(source.storage_option) or None,
        )
        # Garbage collections look only at what is made from now on.
        gc.collect()
        gc.freeze()
        scheme = "http" if tls_cert is None else "https"
        address = f"[{host}]" if ":" in host else host
        run(server, lambda: typer.echo(f"serving on {scheme}://{address}:{port}", err=True))
