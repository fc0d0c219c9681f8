"""How files are laid out: sizes, pages, dictionaries, blooms, sort and curve orders, partition folders."""
