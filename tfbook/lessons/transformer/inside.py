"""Inside lesson 05's own translator: shapes on the way, its equal in the package, and its three attentions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tfbook import runtime
from tfbook.attention import POSITIONS
from tfbook.attention.recording import record
from tfbook.course.translators import Task
from tfbook.models import transformer
from tfbook.models.blocks import Config
from tfbook.text.pairs import Pair, collate
from tfbook.text.vocabulary import PAD

if TYPE_CHECKING:
    from pandas import DataFrame

# ---- shapes on the way -----------------------------------------------------------------------------------------------

WAY = {  # a part of the page's model → its output in words
    "encoder.embed": "a vector for each source word, its position added",
    "encoder.blocks.0.attend.W_Q": "their queries, before they are split into heads",
    "encoder.blocks.0.attend": "what each word gathered from the sentence",
    "encoder.blocks.0.feed_forward.up": "four times as wide, before the ReLU",
    "encoder.blocks.0.feed_forward": "what was computed at each position",
    "encoder.blocks.0": "the stream after the first block",
    "encoder.norm": "the memory, which the decoder reads",
    "decoder.embed": "a vector for each target word so far",
    "decoder.blocks.0.attend": "what each word gathered from earlier ones",
    "decoder.blocks.0.look_back": "what each word gathered from the memory",
    "decoder.blocks.0": "the stream after the first block",
    "decoder.norm": "the last vectors, normalized",
    "decoder.unembed": "a score for every word of the vocabulary",
}


def shapes(model: nn.Module, source: Int[Tensor, "batch source"], target: Int[Tensor, "batch target"]) -> DataFrame:
    """The shape of each part's output in `WAY`, in order, for one pass of the page's model."""
    import pandas as pd

    found: dict[str, tuple[int, ...]] = {}
    parts = dict(model.named_modules())

    def noting(name: str) -> torch.utils.hooks.RemovableHandle:
        return parts[name].register_forward_hook(lambda part, given, out: found.update({name: tuple(out.shape)}))

    handles = [noting(name) for name in WAY]
    with torch.no_grad():
        model(source, target)
    for handle in handles:
        handle.remove()
    rows = [{"part": name, "shape": str(found[name]), "holds": words} for name, words in WAY.items()]
    return pd.DataFrame(rows).set_index("part").rename_axis(None)


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
