"""Settings for every test."""

from __future__ import annotations

import gc
import os
import signal
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A shell starts commands in the background with Ctrl-C ignored, which processes under test would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SPARK = "tests/spark/"
# Start sessions of their own.
CLUSTERS = ("tests/spark/test_cluster_engine.py", "tests/spark/test_read_cluster.py")

# No deadline, as machines differ. `make test` draws the same examples every time, `make test-all` new ones.
settings.register_profile(
    "skipstone",
    deadline=None,
    print_blob=True,
    derandomize="SKIPSTONE_RANDOM" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("skipstone")


# -- which worker runs which test ----------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a file's tests on one worker, which builds its lakes once, and most Spark tests on one session."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return SPARK if shares_session(nodeid) else str(super()._split_scope(nodeid))

    # The long files are in the first folders: sorted by their number of tests they would be the last.
    config.option.loadscopereorder = False
    return Scheduling(config, log)


def shares_session(nodeid: str) -> bool:
    return nodeid.startswith(SPARK) and not nodeid.startswith(CLUSTERS)


def pytest_collection_finish() -> None:
    """Exempt the thousands of collected tests from garbage collection, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1_000)


def pytest_sessionfinish() -> None:
    """Let the interpreter free them at its end."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sample the long grids, and start with Spark: its tests run one after the other, clusters take long."""
    seen: Counter[str] = Counter()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled is not None:
            test = item.nodeid.partition("[")[0]
            if seen[test] % sampled.args[0]:
                item.add_marker("slow")
            seen[test] += 1
    items.sort(key=lambda item: (not item.nodeid.startswith(SPARK), not shares_session(item.nodeid)))


# -- fixtures ------------------------------------------------------------------------------------


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
