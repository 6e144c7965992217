"""Readers, registry, store and generator: everything that turns data into a `Graph`."""
