"""Aggregation, from metadata where possible and from rows otherwise."""
