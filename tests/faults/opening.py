"""Opens a lake on a place that is watched."""

from __future__ import annotations

from typing import Any

import skipstone as sk
from tests.faults._place import WatchedPlace


def open_watched(place: WatchedPlace, retry: sk.RetryPolicy | None = None, **options: Any) -> sk.Lake:
    """What ``sk.open`` would give, on this place."""
    return sk.Lake(place, "", retry=retry, **options)
