"""Weights of Hugging Face's models by name: which of theirs is which of ours, what is missing and what is left over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tfbook.bert import BERT
from tfbook.transformer import Sizes

Rules = Mapping[str, str]  # their name, a pattern → ours

_BODY = {
    r"embeddings\.word_embeddings\.": "words.",
    r"embeddings\.token_type_embeddings\.": "segments.",
    r"embeddings\.position_embeddings\.": "stack.position.table.",
    r"embeddings\.LayerNorm\.": "stack.enter.",
    r"encoder\.layer\.(\d+)\.attention\.self\.query\.": r"stack.blocks.\1.attention.branch.W_Q.",
    r"encoder\.layer\.(\d+)\.attention\.self\.key\.": r"stack.blocks.\1.attention.branch.W_K.",
    r"encoder\.layer\.(\d+)\.attention\.self\.value\.": r"stack.blocks.\1.attention.branch.W_V.",
    r"encoder\.layer\.(\d+)\.attention\.output\.dense\.": r"stack.blocks.\1.attention.branch.W_O.",
    r"encoder\.layer\.(\d+)\.attention\.output\.LayerNorm\.": r"stack.blocks.\1.attention.norm.",
    r"encoder\.layer\.(\d+)\.intermediate\.dense\.": r"stack.blocks.\1.feed_forward.branch.widen.",
    r"encoder\.layer\.(\d+)\.output\.dense\.": r"stack.blocks.\1.feed_forward.branch.narrow.",
    r"encoder\.layer\.(\d+)\.output\.LayerNorm\.": r"stack.blocks.\1.feed_forward.norm.",
}
_WORD_HEAD = {
    r"cls\.predictions\.transform\.dense\.": "head.layer.",
    r"cls\.predictions\.transform\.LayerNorm\.": "head.norm.",
    r"cls\.predictions\.decoder\.": "head.vocabulary.",
    r"cls\.predictions\.bias": "head.vocabulary.bias",
}
_BERT = {theirs: f"bert.{ours}" for theirs, ours in _BODY.items()}
NAMES: dict[str, Rules] = {  # by the name of the class, so that one edited in a notebook is known as well
    "Bert": _BODY,
    "MaskedLanguageModel": _BERT | _WORD_HEAD,
    "PretrainedBert": _BERT
    | _WORD_HEAD
    | {r"pooler\.dense\.": "follows.pool.", r"cls\.seq_relationship\.": "follows.label."},
    "Classifier": _BERT | {r"pooler\.dense\.": "head.pool.", r"classifier\.": "head.label."},
    "Tagger": _BERT | {r"classifier\.": "head.1."},
}
_NORMS = {
    ".LayerNorm.weight": "gain",
    ".LayerNorm.gamma": "gain",
    ".LayerNorm.bias": "shift",
    ".LayerNorm.beta": "shift",
}


class Loaded(NamedTuple):
    """What a file left open."""

    missing: tuple[str, ...]  # weights of ours that it does not hold; they stay as they were
    unexpected: tuple[str, ...]  # its names that stand for nothing here

    def __str__(self) -> str:
        if not self.missing and not self.unexpected:
            return "every weight has its place"
        return f"missing: {', '.join(self.missing) or 'none'}; unexpected: {', '.join(self.unexpected) or 'none'}"


def _bare(theirs: str) -> str:
    """The name in a body that is saved alone; in a model with a head, all of the body's begin with `bert.`."""
    return theirs.removeprefix("bert.")


def our_name(theirs: str, rules: Rules) -> str | None:
    """What we call a weight of theirs; None for one without a place here."""
    bare = _bare(theirs)
    for pattern, ours in rules.items():
        if found := re.match(pattern, bare):
            name = found.expand(ours) + bare[found.end() :]
            last = next((norm for end, norm in _NORMS.items() if bare.endswith(end)), None)
            return name if last is None else f"{name.rpartition('.')[0]}.{last}"
    return None


def load(model: nn.Module, state: Mapping[str, Tensor]) -> Loaded:
    """Copies a Hugging Face state dict into one of our models of the same shape, name by name.

    Raises TypeError for a model without a list of names, and ValueError for a weight of another shape, or for two that
    differ where the model has one; then no weight has changed.
    """
    rules = NAMES.get(type(model).__name__)
    if rules is None:
        raise TypeError(f"model is a {type(model).__name__}; expected one of {', '.join(NAMES)}")
    own = model.state_dict(keep_vars=True)  # the parameters themselves: those that are tied are the same object
    places = {theirs: name for theirs in state if (name := our_name(theirs, rules)) in own}
    given: dict[int, str] = {}
    for theirs, name in places.items():
        shape, ours = tuple(state[theirs].shape), tuple(own[name].shape)
        if shape != ours:
            raise ValueError(f"{theirs} has shape {shape}; {name} of the model has {ours}")
        first = given.setdefault(id(own[name]), theirs)
        if not torch.equal(state[first], state[theirs]):
            raise ValueError(f"{first} and {theirs} differ; the model has one weight, {name}, for both")
    model.load_state_dict({name: state[theirs] for theirs, name in places.items()}, strict=False)
    missing = tuple(name for name, weight in own.items() if id(weight) not in given)
    return Loaded(missing, tuple(theirs for theirs in state if theirs not in places))


def bert_sizes(state: Mapping[str, Tensor], *, heads: int) -> tuple[int, Sizes]:
    """Vocabulary and sizes of a BERT-shaped state dict; the number of heads is in no shape and has to be said.

    Raises ValueError when the state dict is not BERT-shaped.
    """
    shapes = {_bare(name): tuple(weight.shape) for name, weight in state.items()}
    layers = [int(found[1]) for name in shapes if (found := re.match(r"encoder\.layer\.(\d+)\.", name))]
    try:
        vocab, d_model = shapes["embeddings.word_embeddings.weight"]
        longest, _ = shapes["embeddings.position_embeddings.weight"]
        d_ff, _ = shapes["encoder.layer.0.intermediate.dense.weight"]
    except KeyError as error:
        raise ValueError(f"state lacks {error}, which every BERT has") from None
    return vocab, replace(BERT, d_model=d_model, heads=heads, d_ff=d_ff, layers=max(layers) + 1, longest=longest)
