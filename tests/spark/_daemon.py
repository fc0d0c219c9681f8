"""Spark's daemon, whose workers fork with what each of them would have to import."""

from __future__ import annotations

import importlib
import os
import sys

MODULES = (
    *("pandas", "pyarrow.dataset", "pyarrow.parquet", "obstore.store", "pyspark.worker"),
    *("pyspark.sql.worker.plan_data_source_read", "pyspark.sql.worker.write_into_data_source"),
    *("skipstone.spark.table_sink", "skipstone.predicate.spark", "skipstone.predicate.sql"),
)

if __name__ == "__main__":
    # Spark puts its Python code first as a ZIP archive, which each daemon would compile again.
    sys.path[:] = ["", *(path for path in sys.path[1:] if not path.endswith(".zip"))]
    # What has a thread can't be forked.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for module in MODULES:
        importlib.import_module(module)
    from pyspark.daemon import manager

    manager()
