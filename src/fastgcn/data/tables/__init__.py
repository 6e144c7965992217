"""Node and edge tables, CSV or Parquet, to a `Graph` or a store."""
