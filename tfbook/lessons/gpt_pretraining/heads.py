"""The lesson's model in the package, and what its heads do: what is lost without them, and a speaker renamed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from tfbook import data, runtime
from tfbook.attention.positions import POSITIONS
from tfbook.course.equality import renamed
from tfbook.course.experiments import experiment
from tfbook.data.stories import words_of
from tfbook.data.stories.lexicon import NAMES
from tfbook.lessons.gpt_pretraining.determined import right_share
from tfbook.lessons.gpt_pretraining.ladder import HEADS, SAMPLES, SEEDS, STAGES, WIDTH, trained_on_stories
from tfbook.lessons.gpt_pretraining.stories import judged, story_rows
from tfbook.models import gpt
from tfbook.models.feed_forward import FeedForward
from tfbook.pretrain.storyteller import Storyteller, load_storyteller, tell
from tfbook.text.vocabulary import BOS, PAD, Vocabulary
from tfbook.training.losses import next_token_loss

# ---- the lesson's model in the package -------------------------------------------------------------------------------

LONGEST = 128  # positions


def rename(layers: int) -> dict[str, str]:
    """The package's names of the page's layers, which are that many blocks and a norm."""
    parts = {"0": "mixer", "1": "feed_forward"}
    blocks = {f"layers.{i}.{part}.": f"stack.blocks.{i}.{name}." for i in range(layers) for part, name in parts.items()}
    return blocks | {f"layers.{layers}.": "stack.norm."}


def package_gpt(vocab: int, d_model: int, heads: int, d_ff: int, layers: int) -> gpt.Gpt:
    """The package's GPT with the lesson's parts: rotary positions, GELU, no dropout."""
    config = replace(
        gpt.GPT2,
        d_model=d_model,
        heads=heads,
        d_ff=d_ff,
        layers=layers,
        max_length=LONGEST,
        position=POSITIONS["rotary"],
        feed_forward=partial(FeedForward, activation=F.gelu),
        dropout=0.0,
    )
    return gpt.Gpt(vocab, config).eval()


def for_package(model: nn.Module, vocab: int, d_model: int, heads: int, d_ff: int, layers: int) -> gpt.Gpt:
    """The package's GPT with the weights of the page's."""
    package = package_gpt(vocab, d_model, heads, d_ff, layers)
    weights = {renamed(name, rename(layers)): weight for name, weight in model.state_dict().items()}
    package.load_state_dict({"unembed.weight": weights["embed.weight"]} | weights)
    return package.to(next(model.parameters()).device)


# ---- what a head adds ----------------------------------------------------------------------------------------------


@torch.no_grad()
def head_output(model: gpt.Gpt, ids: Int[Tensor, " time"], head: str, at: int) -> Float[Tensor, " d_head"]:
    """The output of a head, "block.head", at position `at`, before `W_O`."""
    attention, number = _attention_of(model, head)
    found: list[Tensor] = []
    handle = attention.W_O.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
    try:
        model(ids[None].to(next(model.parameters()).device))
    finally:
        handle.remove()
    return found[0][0, at].chunk(attention.heads, dim=-1)[number]


@contextmanager
def without(
    model: gpt.Gpt, head: str, at: Sequence[int] | None = None, *, instead: float | Float[Tensor, " d_head"] = 0.0
) -> Iterator[None]:
    """A context in which a head's output is `instead` at these positions, or at all; a `head` of "" changes nothing."""
    if not head:
        yield
        return
    attention, number = _attention_of(model, head)

    def replace_output(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        outputs = inputs[0].clone()  # (batch, time, d_model): heads are concatenated
        of_head = outputs.chunk(attention.heads, dim=-1)[number]
        of_head[:, slice(None) if at is None else list(at)] = instead
        return (outputs,)

    handle = attention.W_O.register_forward_pre_hook(replace_output)
    try:
        yield
    finally:
        handle.remove()


def _heads_of(model: gpt.Gpt) -> list[str]:
    """All heads of a model, "block.head"."""
    return [
        f"{b}.{h}"
        for b, block in enumerate(model.stack.blocks, 1)
        for h in range(1, cast(Any, block).mixer.branch.heads + 1)
    ]


def _attention_of(model: gpt.Gpt, head: str) -> tuple[Any, int]:
    """The attention layer of a head, "block.head" counted from 1, and the head's index in it, from 0."""
    block, number = (int(part) - 1 for part in head.split("."))
    return model.stack.blocks[block].mixer.branch, number


@torch.no_grad()
def names_right(model: Callable[[Tensor], Tensor], rows: Sequence[Tensor], vocabulary: Vocabulary) -> float:
    """Probability of the right name among all names, where a name recurs; `model` gives the logits of (batch, time)."""
    names = vocabulary.encode(NAMES)
    ids = pad_sequence(list(rows), batch_first=True, padding_value=PAD)
    again = [
        (row, t)
        for row, text in enumerate(ids.tolist())
        for t, word in enumerate(text)
        if word in names and word in text[:t]
    ]
    return right_share(model, ids, {"names": again}, vocabulary)["names"]


def names_without(model: gpt.Gpt, head: str, rows: Sequence[Tensor], vocabulary: Vocabulary) -> float:
    """`names_right`, `without` this head."""
    device = next(model.parameters()).device
    with without(model, head):
        return names_right(model, [row.to(device) for row in rows], vocabulary)


# ---- stored: a note at a period ----------------------------------------------------------------------------------

SPEAKING = (
    "Once there was a shy fox named Tim who lived by the river. His best thing was a kite. "
    "There he met a kind owl named {}. “Have you seen my kite?” asked Tim. "
    "“No, I have not seen it,” said"
)
PAIR = ("Anna", "Lucy")
RATE, TRAINED = 0.01, 800  # of the run on the page


@experiment
def notes(*, steps: int = TRAINED, seeds: Sequence[int] = SEEDS) -> list[dict[str, Any]]:
    """The page's run for each seed: its loss and stories, names without each head, and a speaker renamed."""
    return [{"seed": seed} | _notes_of(_trained(seed, steps)) for seed in seeds]


def _trained(seed: int, steps: int) -> gpt.Gpt:
    model = trained_on_stories(STAGES["two blocks"], "Muon", RATE, seed, steps)
    return for_package(model, model.embed.num_embeddings, WIDTH, HEADS, WIDTH, 2)


@torch.no_grad()
def _notes_of(model: gpt.Gpt) -> dict[str, Any]:
    """Names with all heads and without each; the needed heads; the best place to patch, and the new name's share."""
    corpus = data.load("stories")
    rows = story_rows(corpus["valid"][:40], corpus.vocabulary)
    heads = [f"{block}.{head}" for block in (1, 2) for head in range(1, HEADS + 1)]
    without_each = {head: round(names_without(model, head, rows, corpus.vocabulary), 4) for head in heads}
    first, second = (min(part, key=without_each.__getitem__) for part in (heads[:HEADS], heads[HEADS:]))
    found = patched(model, corpus.vocabulary, first)
    told_by = judged(tell(Storyteller(model, corpus.vocabulary), SAMPLES, temperature=0.7))
    ids = pad_sequence(rows, batch_first=True, padding_value=PAD).to(runtime.device())
    whole = round(names_without(model, "", rows, corpus.vocabulary), 4)
    return {
        "loss": round(float(next_token_loss(model, ids, pad=PAD).mean), 4),
        "stories": told_by,
        "names": whole,
        "without": without_each,
        "first": first,
        "second": second,
    } | found


def patched(model: gpt.Gpt, vocabulary: Vocabulary, head: str) -> dict[str, Any]:
    """The place whose vector of this head, from the other story, renames the speaker most, and the names' shares.

    Shares of both names among all words: as the text stands, with the head cut at that place, and with the vector of
    the other story there.
    """
    shares = implanted(model, vocabulary, head)
    place = max(range(1, len(shares)), key=lambda each: shares[each][1])
    one = _ids(PAIR[0], vocabulary)
    with without(model, head, [place]):
        cut = _shares(model, one, vocabulary.encode(PAIR))
    found = {"as it stands": _shares(model, one, vocabulary.encode(PAIR)), "cut": cut, "patched": shares[place]}
    return {"place": vocabulary.tokens[int(one[place])]} | {
        name: [round(share, 4) for share in pair] for name, pair in found.items()
    }


@experiment
def larger_notes() -> list[dict[str, Any]]:
    """For each head of the storyteller: the word at which its vector from the other story renames the speaker most."""
    model, vocabulary = load_storyteller()
    words = [vocabulary.tokens[i] for i in _ids(PAIR[0], vocabulary).tolist()]
    rows = []
    for head in _heads_of(model):
        shares = [lucy for _, lucy in implanted(model, vocabulary, head)]
        place = max(range(len(words)), key=shares.__getitem__)
        rows.append({"head": head, "place": place, "word": words[place], "renamed": round(shares[place], 4)})
    return rows


def implanted(
    model: gpt.Gpt, vocabulary: Vocabulary, head: str, names: tuple[str, str] = PAIR
) -> list[tuple[float, ...]]:
    """For each place in the first name's story: who speaks, with this head's vector from the second's story there.

    The shares of both names among all words.
    """
    one, other = (_ids(name, vocabulary) for name in names)
    found = []
    for place in range(len(one)):
        with without(model, head, [place], instead=head_output(model, other, head, place)):
            found.append(_shares(model, one, vocabulary.encode(names)))
    return found


@torch.no_grad()
def _shares(model: gpt.Gpt, ids: Tensor, names: Sequence[int]) -> tuple[float, ...]:
    """Probabilities of these words after the text."""
    logits = model(ids[None].to(next(model.parameters()).device))[0, -1]
    return tuple(logits.softmax(dim=-1)[list(names)].tolist())


def _ids(name: str, vocabulary: Vocabulary) -> Tensor:
    return torch.tensor([BOS, *vocabulary.encode(words_of(SPEAKING.format(name)))])
