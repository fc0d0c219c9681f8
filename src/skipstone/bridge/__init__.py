"""Bridges to other engines: they ask with their own pushed filters, and read what Skipstone's plans leave."""
