"""Settings for every test."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Machines differ: a slow example is no failure. Failures print what reproduces them. `make test` gives the
# same verdict on the same code; `make test-all` looks for new examples.
settings.register_profile(
    "skipstone",
    deadline=None,
    print_blob=True,
    derandomize="SKIPSTONE_RANDOM" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("skipstone")


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """Storage options of a real S3 endpoint on loopback, with a bucket called ``bucket``."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {
        "aws_endpoint": f"http://{host}:{port}",
        "aws_access_key_id": "testing",
        "aws_secret_access_key": "testing",
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }
    urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/bucket", method="PUT")).close()
    yield options
    server.stop()
