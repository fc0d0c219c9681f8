"""Which delete files bear on which data files, and what they delete."""
