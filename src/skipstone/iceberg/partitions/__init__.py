"""Partition values of every spec as evidence about columns, and the filter made of it."""
