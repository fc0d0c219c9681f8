"""Benchmarks: run one with ``python -m benchmarks.<name> [--quick] [--json FILE] [--seed N]``."""
