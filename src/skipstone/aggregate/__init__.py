"""Aggregates: answered from metadata where it proves them, by reading rows elsewhere."""
