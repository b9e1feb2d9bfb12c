"""One lever a file: its causal chain, its flags, its price and its way back."""
