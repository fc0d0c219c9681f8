"""Data into a lake: clustered files of the wanted size, published all at once, and their index."""
