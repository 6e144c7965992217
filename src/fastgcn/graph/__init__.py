"""`Graph`, checked at the border, and Â, the normalised adjacency matrix."""
