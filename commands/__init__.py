"""The click commands, one file a group; thin, and loaded only when called."""
