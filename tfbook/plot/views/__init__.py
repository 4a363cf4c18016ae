"""Interactive views for notebooks and HTML pages, without network, kernel or widgets, and tables without JavaScript."""

from tfbook.plot.views.attention import attention_view
from tfbook.plot.views.bpe import bpe_view
from tfbook.plot.views.breaking import break_view
from tfbook.plot.views.explorer import next_token_view
from tfbook.plot.views.guessing import guessing_view
from tfbook.plot.views.masks import mask_view
from tfbook.plot.views.painter import painter_view
from tfbook.plot.views.pricing import price_view
from tfbook.plot.views.rotary import rotary_view
from tfbook.plot.views.sampling import sampling_view
from tfbook.plot.views.stepper import decoding_view
from tfbook.plot.views.story import AskedStory, story_view
from tfbook.plot.views.tape import tape_view

__all__ = [
    "AskedStory",
    "attention_view",
    "bpe_view",
    "break_view",
    "decoding_view",
    "guessing_view",
    "mask_view",
    "next_token_view",
    "painter_view",
    "price_view",
    "rotary_view",
    "sampling_view",
    "story_view",
    "tape_view",
]
