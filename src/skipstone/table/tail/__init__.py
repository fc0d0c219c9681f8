"""Unflushed rows of a keyed table: a write-ahead log, memtables, and the one process that writes to them."""
