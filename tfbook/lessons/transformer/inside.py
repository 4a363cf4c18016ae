"""Inside lesson 05's own translator: its scoreboard, its equal in the package, and its three attentions."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tfbook import runtime
from tfbook.attention import POSITIONS
from tfbook.attention.recording import record
from tfbook.course.metrics import Link
from tfbook.course.translators import Task
from tfbook.models import transformer
from tfbook.models.blocks import Config
from tfbook.text.pairs import Pair, collate
from tfbook.text.vocabulary import PAD

if TYPE_CHECKING:
    from pandas import DataFrame

# ---- tables of the page ----------------------------------------------------------------------------------------------


def growth(board: Mapping[str, tuple[float, float, str]]) -> DataFrame:
    """The page's scoreboard: a row for each machine with its loss, its BLEU, and its translation of one sentence."""
    import pandas as pd

    rows = [
        {"machine": name, "loss": f"{loss:.2f}", "BLEU": f"{bleu:.0f}", "your sentence": _shortened(said)}
        for name, (loss, bleu, said) in board.items()
    ]
    return pd.DataFrame(rows).set_index("machine").rename_axis(None)


def _shortened(said: str, *, longest: int = 45) -> str:
    """A translation cut after a word, or a dash where there is none."""
    return textwrap.shorten(said, longest, placeholder=" …") or "–"


def steps(found: Mapping[str, Float[Tensor, "1 word number"]]) -> DataFrame:
    """The first word's vector in each tensor: a row for each of them, a column for each number."""
    import pandas as pd

    rows = {name: [f"{number:.2f}" for number in x[0, 0].tolist()] for name, x in found.items()}
    return pd.DataFrame.from_dict(rows, orient="index")


# ---- the same in the package -----------------------------------------------------------------------------------------


class Transformer(transformer.Transformer):
    """The package's Transformer, called as the page calls its own."""

    def forward(  # type: ignore[override]
        self, source: Int[Tensor, "batch source"], target: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target vocab"]:
        """Scores of the word after each of `target`."""
        logits: Tensor = super().forward(source, (source != PAD).sum(dim=1), target).logits
        return logits


def package_model(
    source_words: int, target_words: int, d_model: int, heads: int, d_ff: int, layers: int
) -> Transformer:
    """The package's Transformer with lesson 05's parts: sinusoids, pre-norm, tied embeddings."""
    config = Config(d_model=d_model, heads=heads, d_ff=d_ff, layers=layers, position=POSITIONS["sinusoidal"])
    return Transformer(transformer.Encoder(source_words, config), transformer.Decoder(target_words, config))


def parameter_names(layers: int) -> dict[str, str]:
    """Prefixes of the page's parameter names, each with the package's."""
    parts = {
        "encoder": {"attend": "mixer.branch", "norms.0": "mixer.norm"},
        "decoder": {
            "attend": "mixer.branch",
            "first_norm": "mixer.norm",
            "look_back": "cross.branch",
            "norms.0": "cross.norm",
        },
    }
    ends = {"feed_forward": "feed_forward.branch", "norms.1": "feed_forward.norm"}
    inside = {
        f"{side}.blocks.{i}.{ours}.": f"{side}.stack.blocks.{i}.{theirs}."
        for side, table in parts.items()
        for i in range(layers)
        for ours, theirs in (table | ends).items()
    }
    return inside | {f"{side}.norm.": f"{side}.stack.norm." for side in parts}


# ---- three attentions ------------------------------------------------------------------------------------------------


def swapped(pair: Pair) -> list[Link]:
    """The sure links of the first two neighbors that change places and have one link each; none if there are none."""
    sources, targets = (Counter(link[side] for link in pair.sure) for side in (0, 1))
    alone = {link for link in pair.sure if sources[link[0]] == targets[link[1]] == 1}
    for j, t in sorted(alone):
        if (j + 1, t - 1) in alone:
            return [(j, t), (j + 1, t - 1)]
    return []


class AttentionMap(NamedTuple):
    """The weights of one head, and the words that it joins."""

    title: str
    weights: Float[Tensor, "query key"]
    queries: list[str]
    keys: list[str]


@torch.inference_mode()
def three_maps(model: transformer.Transformer, pair: Pair, task: Task, cross: tuple[int, int]) -> list[AttentionMap]:
    """A head of each of the three attentions on one true pair: `cross`, a layer and a head from 0, and the sharpest.

    The sharpest self-attention head has the largest weights on average, the first row left out, in which the decoder
    has no choice. A row of cross-attention is labeled with the word that is written there.
    """
    model.eval()
    batch = collate([pair], task.source_vocab, task.target_vocab).to(runtime.device())
    with record(model) as maps:
        model.decoder(batch.target_in, model.encoder(batch.source, batch.source_lengths))
    source = [task.source_vocab.tokens[i] for i in batch.source[0].tolist()]
    target = [task.target_vocab.tokens[i] for i in batch.target_in[0].tolist()]
    written = [task.target_vocab.tokens[i] for i in batch.target_out[0].tolist()]

    def layers(side: str, part: str) -> list[Float[Tensor, "head query key"]]:
        return [w[0].float().cpu() for name, w in maps.items() if name.startswith(side) and part in name]

    def sharpest(side: str) -> Float[Tensor, "query key"]:
        heads = torch.cat(layers(side, ".mixer."))
        return heads[int(heads[:, 1:].amax(dim=-1).mean(dim=-1).argmax())]

    layer, head = cross
    return [
        AttentionMap("Encoder: source to source", sharpest("encoder."), source, source),
        AttentionMap("Decoder: to earlier words", sharpest("decoder."), target, target),
        AttentionMap("Cross: target to source", layers("decoder.", ".cross.")[layer][head], written, source),
    ]
