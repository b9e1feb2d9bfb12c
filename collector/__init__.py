"""Gets facts from the world into a run directory."""
