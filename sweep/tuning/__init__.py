"""A search for a better dense recipe."""
