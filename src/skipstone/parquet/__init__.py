"""The format: footers, page indexes, bloom filters and dictionaries, and the evidence they give."""
