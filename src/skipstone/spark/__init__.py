"""Spark: data frames of scans, and the data source ``skipstone``."""
