"""Iceberg tables as lakes: snapshots, partition specs that evolved, schemas by field id, deletes."""
