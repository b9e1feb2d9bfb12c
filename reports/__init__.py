"""A diagnosis made readable: terminal, one page, JSON. Draws; never computes."""
