"""Compaction of Iceberg tables: plan which files to rewrite, rewrite them, commit the result."""
