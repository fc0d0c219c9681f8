"""Mergeable aggregate states, independent of lakes and scans; the index stores them."""
