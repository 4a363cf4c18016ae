"""Models whose steps can be recorded, and what stands for a recording without a GPU."""

from collections.abc import Callable
from functools import partial

from traced_models import gpt

from tfbook.attention import POSITIONS
from tfbook.attention.grouped_query import GroupedQueryAttention
from tfbook.generation.frozen import Frozen
from tfbook.models.blocks import PostNorm
from tfbook.models.feed_forward import SwiGLU
from tfbook.models.language_model import LanguageModel
from tfbook.models.norms import RMSNorm

MODELS: dict[str, Callable[[], LanguageModel]] = {
    **{name: partial(gpt, position=name) for name in POSITIONS},
    **{f"frozen, {name}": lambda name=name: Frozen(gpt(position=name)) for name in POSITIONS},
    "grouped queries": partial(
        gpt,
        position="rotary",
        mixer=partial(GroupedQueryAttention, groups=2),
        feed_forward=SwiGLU,
        norm=RMSNorm,
        residual=PostNorm,
    ),
}


def as_it_is(step: Callable[[], None]) -> Callable[[], None]:
    """In place of a CUDA graph: a few runs, as recording takes, and the step itself."""
    for _ in range(3):
        step()
    return step
