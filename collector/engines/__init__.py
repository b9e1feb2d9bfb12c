"""Engines as data: one YAML file maps an engine's metric names to canonical signals."""
