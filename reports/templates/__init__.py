"""Templates of the one page."""
