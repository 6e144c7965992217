"""Feature rows and ÂX: in memory, sparse or on disk, behind one interface."""
