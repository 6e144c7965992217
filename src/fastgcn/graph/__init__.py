"""`Graph`, whose constructor checks its input, and Â, the normalised adjacency matrix."""
