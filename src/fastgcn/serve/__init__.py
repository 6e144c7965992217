"""A run as a service over HTTP, with a page for people (`pip install fastgcn[serve]`)."""
