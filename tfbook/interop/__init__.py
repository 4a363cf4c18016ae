"""Weights of other libraries, by name, in and out."""
