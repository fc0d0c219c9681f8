"""How the rows of a grid fall into files by each way to cluster them: a letter is a file.

Run it with ``python examples/curves.py``.
"""

from __future__ import annotations

import numpy as np

from skipstone.parquet.write.order import hilbert, zorder

BITS = 3
SIDE = 1 << BITS
FILES = "ABCDEFGH"


def positions() -> dict[str, np.ndarray]:
    """The place of each cell (x, y) in the order of each way, as an array [y, x]."""
    y, x = (axis.ravel() for axis in np.mgrid[0:SIDE, 0:SIDE])
    found = {"sort": x * SIDE + y, "zorder": zorder([x, y], BITS), "hilbert": hilbert([x, y], BITS)}
    return {name: place.reshape(SIDE, SIDE) for name, place in found.items()}


def mean_files(files: np.ndarray, axis: int) -> float:
    """How many files hold one value of a column, on average: of x with axis 0, of y with axis 1."""
    return float(np.mean([len(set(line)) for line in np.moveaxis(files, axis, -1)]))


def main() -> None:
    """Draw the grids side by side, and what a look-up of each column reads."""
    files = {name: place * len(FILES) // SIDE**2 for name, place in positions().items()}
    width = 2 * SIDE + 3
    print("     " + "".join(f"{name:<{width}}" for name in files).rstrip())
    for y in reversed(range(SIDE)):
        lines = (" ".join(FILES[file] for file in grid[y]) for grid in files.values())
        print(f"y={y}  " + "".join(f"{line:<{width}}" for line in lines).rstrip())
    for axis, name in enumerate("xy"):
        found = (f"one {name}: {mean_files(grid, axis):g} of {len(FILES)}" for grid in files.values())
        print("     " + "".join(f"{words:<{width}}" for words in found).rstrip())


if __name__ == "__main__":
    main()
