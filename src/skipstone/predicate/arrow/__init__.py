"""pyarrow expressions to predicates and back.

pyarrow compares floats as IEEE does, Skipstone as Spark does (NaN equals itself and is largest);
each direction rewrites what differs. In pyarrow ``x != x`` is TRUE for NaN alone, whatever the type
of ``x``, so it stands for ``isnan`` where no schema says that ``is_nan`` has a kernel.

One difference stays: pyarrow's ``is_in`` tells 0.0 from -0.0 in a float column. That is kept for a
list of floats; a list of integers with a zero in it matches both.
"""

from __future__ import annotations

from skipstone.predicate.arrow.read import from_arrow
from skipstone.predicate.arrow.write import to_arrow

__all__ = ["from_arrow", "to_arrow"]
