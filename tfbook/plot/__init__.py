"""Figures in one hand: house style, direct labels, alt text, curves, attention and masks, the lessons' diagrams."""

from tfbook.plot.attention import attention_map, bipartite, blocked_cells, head_maps, mask_picture
from tfbook.plot.curves import label_ends, lines
from tfbook.plot.diagrams import course_map, seq2seq_diagram
from tfbook.plot.house import COLOURS, EDGE, FAINT, INK, MARKERS, show, style

__all__ = [
    "COLOURS",
    "EDGE",
    "FAINT",
    "INK",
    "MARKERS",
    "attention_map",
    "bipartite",
    "blocked_cells",
    "course_map",
    "head_maps",
    "label_ends",
    "lines",
    "mask_picture",
    "seq2seq_diagram",
    "show",
    "style",
]
