"""Keyed tables: writes that keep at most one live row per key in every snapshot."""
