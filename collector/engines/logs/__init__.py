"""Engine logs as data: one YAML file an engine says which lines mean something, and what."""
