"""How files of a table shall be laid out: as the caller says, else as the table's properties do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from skipstone.errors import UsageError
from skipstone.ingest.job import make_layout
from skipstone.write.layout import CODECS, Layout

if TYPE_CHECKING:
    from pyiceberg.table import Table

_NUMBERS: Final = {
    "target_file_bytes": "write.target-file-size-bytes",
    "row_group_rows": "write.parquet.row-group-limit",
    "row_group_bytes": "write.parquet.row-group-size-bytes",
    "page_rows": "write.parquet.page-row-limit",
}
_CODEC: Final = "write.parquet.compression-codec"
_LEVEL: Final = "write.parquet.compression-level"
_BLOOM: Final = "write.parquet.bloom-filter-enabled.column."


def table_layout(table: Table, given: Mapping[str, Any]) -> Layout:
    """The layout of a table's files; partitions are the spec's affair, and the sort order is the default."""
    if given.get("partition_by"):
        hint = "leave partition_by out; a table's spec is changed with pyiceberg's update_spec"
        raise UsageError("a table has its own partition spec", path=".".join(table.name()), hint=hint)
    chosen = {name: value for name, value in given.items() if value is not None and name != "partition_by"}
    told = table.properties
    for name, key in _NUMBERS.items():
        if key in told:
            chosen.setdefault(name, int(told[key]))
    codec = told.get(_CODEC, "").lower().replace("uncompressed", "none")
    if "compression" not in chosen and codec in CODECS:
        chosen["compression"] = codec
        if told.get(_LEVEL, "").lstrip("-").isdigit():
            chosen.setdefault("compression_level", int(told[_LEVEL]))
    blooms = [
        key.removeprefix(_BLOOM) for key, value in told.items() if key.startswith(_BLOOM) and value == "true"
    ]
    return make_layout(
        (),
        chosen.pop("cluster_by", None) or sort_columns(table),
        chosen.pop("cluster", "sort"),
        chosen.pop("target_file_bytes", None),
        chosen.pop("blooms", None) or blooms,
        chosen,
    )


def sort_columns(table: Table) -> Sequence[str]:
    """The columns of a table's sort order; a bucket is no order, so what follows one is left out."""
    names: dict[str, None] = {}
    for one in table.sort_order().fields:
        name = table.schema().find_column_name(one.source_id)
        if name is None or str(one.transform).startswith("bucket"):
            break
        if str(one.transform) != "void":
            names[name] = None
    return list(names)
