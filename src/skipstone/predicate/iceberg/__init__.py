"""pyiceberg expressions both ways.

pyiceberg answers NULL in two ways. Its row evaluator (``visitors._ExpressionEvaluationVisitor``) is
two-valued: NULL satisfies NotEqualTo, NotIn, NotNaN and NotStartsWith, as in Iceberg's Java library and in
its metrics evaluators, and nothing else. Its Arrow filter (``_ConvertToArrowExpression``) loses NULL rows of
NotEqualTo, NotNaN and NotStartsWith but keeps those of NotIn. Reading, we take the two-valued meaning: it
keeps the most rows, and Spark's Iceberg connector says ``NotNull(a) AND NotEqualTo(a, v)`` when it means
SQL's. Writing, we say NULL aloud, so that both ways of pyiceberg give the same rows.

NaN: Iceberg orders it last, as Spark does; pyiceberg compares as IEEE does and loses NaN rows of ``f > 2``.
Writing, ``>`` and ``>=`` get ``OR is-nan``; pyiceberg drops that at binding where the column is no float.
"""

from __future__ import annotations

from skipstone.predicate.iceberg.read import from_iceberg
from skipstone.predicate.iceberg.write import to_iceberg

__all__ = ["from_iceberg", "to_iceberg"]
