"""Facts about files, tables and snapshots, and their views."""
