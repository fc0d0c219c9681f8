"""A server that plans scans: the Iceberg REST catalog protocol, and a JSON API."""
