"""One file a source of measurements: metrics endpoints, the host, the GPU."""
