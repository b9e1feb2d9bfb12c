"""One soundness check of the measurement or the hardware a file; they come before the symptoms."""
