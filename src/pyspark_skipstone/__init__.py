"""PySpark imports this module by its name and registers the format ``skipstone`` in every session."""

from skipstone.spark.source import SkipstoneSource as DefaultSource

__all__ = ["DefaultSource"]
