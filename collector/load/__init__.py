"""The load generator: sends requests as planned, times every answer, and watches its own health."""
