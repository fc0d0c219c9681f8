"""Settings for every test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Machines differ: a slow example is no failure. Failures print what reproduces them.
settings.register_profile(
    "skipstone", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("skipstone")
