"""Integration with other engines: they push down filters, and read what Skipstone's plans keep."""
