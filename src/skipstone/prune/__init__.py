"""Pruner and the cascade over the levels of one file, or of many."""
