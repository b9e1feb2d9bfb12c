"""`python -m whybound` is `profile`."""

from .cli import main

main()
