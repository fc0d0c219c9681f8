"""DataFusion expressions to predicates and back.

DataFusion orders NaN as Spark does. What differs depends on the column's type, unknown here: it cuts
a timestamp to the column's unit, and takes dates and years in the column's zone. Such a comparison
becomes an opaque leaf beside a wider one that can be judged.

Two of its answers are taken as the SQL they stand for: a list of more than three floats tells 0.0
from -0.0 where a shorter one doesn't, and a field of a NULL struct is whatever its buffer holds.
"""

from __future__ import annotations

from skipstone.predicate.datafusion.read import from_datafusion
from skipstone.predicate.datafusion.write import to_datafusion

__all__ = ["from_datafusion", "to_datafusion"]
