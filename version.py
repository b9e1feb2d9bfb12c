"""The version, apart from `__init__`: a room can name it without importing the other rooms."""

__version__ = "0.1.0"
