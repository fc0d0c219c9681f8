"""Bytes, wherever they are: one file behind one interface, with coalesced reads, versions and counting."""
