"""Other engines read through Skipstone, and write through it."""
