"""Which delete files apply to which data files, and what they delete."""
