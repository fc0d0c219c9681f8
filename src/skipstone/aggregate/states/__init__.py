"""Mergeable aggregate states: what can be kept per unit and put together later; below lakes and scans."""
