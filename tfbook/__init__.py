"""tfbook: the one implementation of every idea in the course on attention and Transformers."""

__version__ = "0.1.0"
