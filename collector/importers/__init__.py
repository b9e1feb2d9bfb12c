"""Files that people have, into a run: each kind recognised by its content, each read within bounds."""
