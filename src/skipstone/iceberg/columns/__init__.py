"""Columns by field id: types, names, defaults."""
