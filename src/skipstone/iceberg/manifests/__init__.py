"""What manifests say of files: read fast, in columns, and as evidence."""
