"""Benchmarks: measured figures as JSON lines, and the tables made from those alone."""
