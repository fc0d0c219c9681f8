"""What there is to read: files, their partitions, and one schema for them all."""
