"""The figures of the course: style, curves, attention maps and masks, diagrams, tokens, beams, interactive views."""

from tfbook.plot.attention import attention_map, blocked_cells, head_maps, mask_picture
from tfbook.plot.beam import beam_nodes, beam_tree
from tfbook.plot.curves import label_ends, lines
from tfbook.plot.house import COLORS, EDGE, FAINT, INK, MARKERS, show, style
from tfbook.plot.schematic import Schematic
from tfbook.plot.shading import shaded_text
from tfbook.plot.tokens import token_rows, visible
from tfbook.plot.views import (
    AskedStory,
    attention_view,
    bpe_view,
    break_view,
    decoding_view,
    guessing_view,
    mask_view,
    next_token_view,
    painter_view,
    price_view,
    rotary_view,
    sampling_view,
    story_view,
    tape_view,
)

__all__ = [
    "COLORS",
    "EDGE",
    "FAINT",
    "INK",
    "MARKERS",
    "AskedStory",
    "Schematic",
    "attention_map",
    "attention_view",
    "beam_nodes",
    "beam_tree",
    "blocked_cells",
    "bpe_view",
    "break_view",
    "decoding_view",
    "guessing_view",
    "head_maps",
    "label_ends",
    "lines",
    "mask_picture",
    "mask_view",
    "next_token_view",
    "painter_view",
    "price_view",
    "rotary_view",
    "sampling_view",
    "shaded_text",
    "show",
    "story_view",
    "style",
    "tape_view",
    "token_rows",
    "visible",
]
