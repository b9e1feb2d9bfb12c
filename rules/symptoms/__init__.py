"""One symptom a file: what it means, when it fires, and cases that prove it."""
