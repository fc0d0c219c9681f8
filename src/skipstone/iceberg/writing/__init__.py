"""New files and the snapshots that bring them in."""
