"""Drawings of mechanisms: boxes, matrices, bars and arrows on a grid that sizes itself."""

from tfbook.plot.schematic.canvas import Schematic

__all__ = ["Schematic"]
