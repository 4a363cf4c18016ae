"""The figures of the course: style and alt text, curves, attention maps and masks, diagrams, tokens, beam search."""

from tfbook.plot.attention import attention_map, bipartite, blocked_cells, head_maps, mask_picture
from tfbook.plot.beam import beam_nodes, beam_tree
from tfbook.plot.curves import label_ends, lines
from tfbook.plot.diagrams import block_diagram, course_map, seq2seq_diagram, transformer_diagram
from tfbook.plot.house import COLORS, EDGE, FAINT, INK, MARKERS, show, style
from tfbook.plot.schematic import Schematic
from tfbook.plot.tokens import token_rows

__all__ = [
    "COLORS",
    "EDGE",
    "FAINT",
    "INK",
    "MARKERS",
    "Schematic",
    "attention_map",
    "beam_nodes",
    "beam_tree",
    "bipartite",
    "block_diagram",
    "blocked_cells",
    "course_map",
    "head_maps",
    "label_ends",
    "lines",
    "mask_picture",
    "seq2seq_diagram",
    "show",
    "style",
    "token_rows",
    "transformer_diagram",
]
