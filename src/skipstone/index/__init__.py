"""Indexes of a lake: advice before one is built, and the index itself."""
