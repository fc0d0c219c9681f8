"""Found by PySpark through its name: makes the format ``skipstone`` known to every session."""

from skipstone.spark.source import SkipstoneSource as DefaultSource

__all__ = ["DefaultSource"]
