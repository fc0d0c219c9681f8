"""Logs and metrics of a server: one JSON line per request, and metrics for Prometheus."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TextIO

_BOUNDS: Final = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)


class Log:
    """Writes one line of JSON per request: never a predicate, a token or a body."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def write(self, **fields: Any) -> None:
        """Write one line; fields that are None are left out."""
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds")}
        line |= {name: value for name, value in fields.items() if value is not None}
        stream = sys.stderr if self._stream is None else self._stream
        with self._lock:
            stream.write(json.dumps(line) + "\n")
            stream.flush()


class Metrics:
    """Counters and a histogram of answer times, by route and status; no names of tables or callers."""

    def __init__(self, open_plans: Callable[[], int]) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: Counter[tuple[str, float]] = Counter()
        self._seconds: Counter[str] = Counter()
        self._files: Counter[str] = Counter()
        self._open_plans = open_plans
        self._lock = threading.Lock()
        self.started = time.time()

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        with self._lock:
            self._requests[route, status] += 1
            self._seconds[route] += seconds  # type: ignore[assignment]
            for bound in _BOUNDS:
                self._buckets[route, bound] += seconds <= bound

    def planned(self, files: int, of_files: int) -> None:
        """Count the files that a plan keeps and drops."""
        with self._lock:
            self._files["kept"] += files
            self._files["dropped"] += of_files - files

    def text(self) -> str:
        """All metrics in Prometheus' text format."""
        with self._lock:
            lines = ["# TYPE skipstone_requests_total counter"]
            for (route, status), count in sorted(self._requests.items()):
                lines.append(f'skipstone_requests_total{{route="{route}",status="{status}"}} {count}')
            lines.append("# TYPE skipstone_request_seconds histogram")
            for route in sorted(self._seconds):
                total = sum(count for (one, _), count in self._requests.items() if one == route)
                label = f'route="{route}"'
                for bound in _BOUNDS:
                    count = self._buckets[route, bound]
                    lines.append(f'skipstone_request_seconds_bucket{{{label},le="{bound}"}} {count}')
                lines.append(f'skipstone_request_seconds_bucket{{{label},le="+Inf"}} {total}')
                lines.append(f"skipstone_request_seconds_sum{{{label}}} {self._seconds[route]}")
                lines.append(f"skipstone_request_seconds_count{{{label}}} {total}")
            lines.append("# TYPE skipstone_planned_files_total counter")
            lines += [
                f'skipstone_planned_files_total{{verdict="{verdict}"}} {self._files[verdict]}'
                for verdict in ("kept", "dropped")
            ]
        lines += ["# TYPE skipstone_open_plans gauge", f"skipstone_open_plans {self._open_plans()}"]
        lines += ["# TYPE skipstone_start_time_seconds gauge"]
        lines += [f"skipstone_start_time_seconds {self.started:.3f}"]
        return "\n".join(lines) + "\n"
