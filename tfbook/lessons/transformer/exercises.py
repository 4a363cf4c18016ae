"""Exercises of lesson 05: the parts of a Transformer by hand, its masks and its training."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from tfbook.course.exercises import exercise, randn
from tfbook.lessons.transformer.first_exercises import normalize as normalize
from tfbook.text.vocabulary import PAD

# ---- a block -----------------------------------------------------------------------------------------------------

Layer = Callable[[Tensor], Tensor]


def _attention(x: Tensor) -> Tensor:
    """A mean over the past, in attention's place."""
    return x.cumsum(dim=1) / torch.arange(1, x.shape[1] + 1)[:, None]


def _feed_forward(x: Tensor) -> Tensor:
    """A nonlinearity for each entry, in the place of the feed-forward net."""
    return x.relu() - 0.5 * x.square()


def _norm(weight: float) -> Layer:
    return lambda x: weight * nn.functional.layer_norm(x, x.shape[-1:])


def _x_and_layers() -> list[tuple[Tensor, Layer, Layer, Layer, Layer]]:
    return [
        (3 * randn(2, 3, 4, seed=7), _attention, _feed_forward, _norm(0.5), _norm(2.0)),
        (randn(3, 5, 2, seed=8), _feed_forward, _attention, _norm(1.5), _norm(0.3)),
    ]


@exercise(
    cases=_x_and_layers,
    hints=[
        "Two branches, one after the other. Each reads a normalized copy of x and adds what it finds to x itself.",
        "`x = x + layer(norm(x))`, twice. The second branch reads what the first has left.",
    ],
)
def pre_norm_block(
    x: Tensor, attention: Layer, feed_forward: Layer, attention_norm: Layer, feed_forward_norm: Layer
) -> Tensor:
    x = x + attention(attention_norm(x))
    return x + feed_forward(feed_forward_norm(x))


_BRANCHES: dict[str, Callable[[Tensor, Layer, Layer], Tensor]] = {
    "pre-norm": lambda x, layer, norm: x + layer(norm(x)),
    "post-norm": lambda x, layer, norm: norm(x + layer(x)),
    "norm behind": lambda x, layer, norm: x + norm(layer(x)),
    "norm of both": lambda x, layer, norm: norm(x) + layer(norm(x)),
    "no norm": lambda x, layer, norm: x + layer(x),
    "no residual": lambda x, layer, norm: layer(norm(x)),
}


def _block(attention: str, feed_forward: str) -> Callable[[Tensor, Layer, Layer, Layer, Layer], Tensor]:
    """A block with branches of these kinds."""
    first, second = _BRANCHES[attention], _BRANCHES[feed_forward]
    return lambda x, attend, feed, norm_1, norm_2: second(first(x, attend, norm_1), feed, norm_2)


pre_norm_block.mistakes(
    {
        "this is post-norm: the norm stands behind the sum, on the stream, which should run through untouched": (
            _block("post-norm", "post-norm")
        ),
        "you add to the normalized x: only the branch reads that, and the sum keeps x itself": (
            _block("norm of both", "norm of both")
        ),
        "nothing is normalized: both branches read x as it is": _block("no norm", "no norm"),
        "the feed-forward net reads x without a norm": _block("pre-norm", "no norm"),
        "attention reads x without a norm": _block("no norm", "pre-norm"),
        "one norm serves both branches: each has its own, with its own weight": (
            lambda x, attend, feed, norm_1, norm_2: pre_norm_block.reference(x, attend, feed, norm_1, norm_1)
        ),
        "the norms are exchanged: each branch has its own": (
            lambda x, attend, feed, norm_1, norm_2: pre_norm_block.reference(x, attend, feed, norm_2, norm_1)
        ),
        "the norm stands behind each branch; here the branch begins with it": (_block("norm behind", "norm behind")),
        "the branches run side by side: the second should read what the first has left": (
            lambda x, attend, feed, norm_1, norm_2: x + attend(norm_1(x)) + feed(norm_2(x))
        ),
        "the second sum forgets what attention found: add to the x that it has left": (
            lambda x, attend, feed, norm_1, norm_2: x + feed(norm_2(x + attend(norm_1(x))))
        ),
        (
            "one residual for both layers: what attention finds reaches the stream only through the feed-forward net; "
            "each layer's output is added to x"
        ): lambda x, attend, feed, norm_1, norm_2: x + feed(norm_2(attend(norm_1(x)))),
        "attention has no residual: what it does not find is lost": _block("no residual", "pre-norm"),
        "the feed-forward net has no residual: x ends with it": _block("pre-norm", "no residual"),
        "no branch is added to anything: this is a chain of layers without residuals": (
            _block("no residual", "no residual")
        ),
        "the feed-forward net comes first; attention should": (
            lambda x, attend, feed, norm_1, norm_2: pre_norm_block.reference(x, feed, attend, norm_2, norm_1)
        ),
    }
)

# ---- the schedule ------------------------------------------------------------------------------------------------


def _steps_width_and_warmup() -> list[tuple[Tensor, int, int]]:
    return [(torch.arange(12), 16, 4), (torch.tensor([0, 9, 10, 11, 100_000]), 64, 10), (torch.tensor([3, 0]), 4, 1)]


@exercise(
    cases=_steps_width_and_warmup,
    hints=[
        "`steps` counts from 0, the formula from 1: which t belongs to the first step?",
        "`torch.minimum` compares two tensors entry by entry. Before warm-up ends the straight line is smaller, "
        "afterwards the root.",
    ],
)
def learning_rate(steps: Tensor, d_model: int, warmup: int) -> Tensor:
    t = steps + 1
    return d_model**-0.5 * torch.minimum(t**-0.5, t * warmup**-1.5)


Choice = Callable[[Tensor, Tensor], Tensor]  # (the root, the straight line) → what the rate follows


def _rates(
    steps: Tensor, d_model: int, warmup: int, *, of: Choice = torch.minimum, first: int = 1, power: float = -1.5
) -> Tensor:
    t = steps + first
    return d_model**-0.5 * of(t**-0.5, t * warmup**power)


learning_rate.mistakes(
    {
        "the straight line still counts steps from 0: t = step + 1 in both of its places": (
            lambda steps, d_model, warmup: d_model**-0.5 * torch.minimum((steps + 1) ** -0.5, steps * warmup**-1.5)
        ),
        "your first step has rate 0 and changes nothing: `steps` counts from 0 and t from 1": partial(_rates, first=0),
        "the larger of the two: it begins at its highest, falls until the warm-up ends, and then rises forever": (
            partial(_rates, of=torch.maximum)
        ),
        "it rises and then stays: after the warm-up the rate falls with t^(−1/2)": (
            lambda steps, d_model, warmup: (d_model * warmup) ** -0.5 * ((steps + 1) / warmup).clamp(max=1)
        ),
        "you counted the entries: `steps` says which steps are asked for, in any order": (
            lambda steps, *rest: learning_rate.reference(torch.arange(len(steps)), *rest)
        ),
        "there is no warm-up: it begins at its highest": partial(_rates, of=lambda root, line: root),
        "there is only the warm-up: it rises forever": partial(_rates, of=lambda root, line: line),
        "d_model is missing: wider models train at smaller rates": (
            lambda steps, d_model, warmup: learning_rate.reference(steps, 1, warmup)
        ),
        "wider models would train at larger rates: the exponent of d_model is −1/2": (
            lambda steps, d_model, warmup: d_model * learning_rate.reference(steps, d_model, warmup)
        ),
        "this peaks at 1, as the package's `inverse_sqrt` does: a factor for a rate that is given elsewhere": (
            lambda steps, d_model, warmup: (d_model * warmup) ** 0.5 * learning_rate.reference(steps, d_model, warmup)
        ),
        "the lines do not meet at t = warmup: the exponent of warmup is −3/2, not −1/2": partial(_rates, power=-0.5),
    }
)

# ---- three masks -------------------------------------------------------------------------------------------------


Masks = tuple[Tensor, Tensor, Tensor]


def _source_and_target_lengths() -> list[tuple[Tensor, Tensor]]:
    # as many source as target positions in the first case, so that a mask of the other side raises no error
    return [
        (torch.tensor([4, 2, 1]), torch.tensor([2, 4, 3])),
        (torch.tensor([3, 1]), torch.tensor([2, 5])),
        (torch.tensor([4, 5]), torch.tensor([1, 1])),
    ]


@exercise(
    cases=_source_and_target_lengths,
    hints=[
        "Ask two questions for each mask: whose words are the keys, and may a query look ahead?",
        "`torch.arange(size) < lengths[:, None]` marks the words, (batch, key). `[:, None]` adds the axis of the "
        "queries, and `expand` or `repeat` fills it.",
    ],
)
def three_masks(source_lengths: Tensor, target_lengths: Tensor) -> Masks:
    source, target = int(source_lengths.max()), int(target_lengths.max())
    source_words = (torch.arange(source) < source_lengths[:, None])[:, None]
    target_words = (torch.arange(target) < target_lengths[:, None])[:, None]
    causal = torch.ones(target, target, dtype=torch.bool).tril()
    return source_words.repeat(1, source, 1), causal & target_words, source_words.repeat(1, target, 1)


def _changed(**changes: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Masks]:
    """The right masks with `changes`, each of a mask and where the target has words, (batch, 1, time)."""

    def wrong(source_lengths: Tensor, target_lengths: Tensor) -> Masks:
        names = ("encoder", "decoder", "cross")
        masks = dict(zip(names, three_masks.reference(source_lengths, target_lengths), strict=True))
        words = masks["decoder"][:, -1:]  # the last position looks back at all of them
        return tuple(changes[name](mask, words) if name in changes else mask for name, mask in masks.items())

    return wrong


three_masks.mistakes(
    {
        "the encoder's mask is causal: a source word may read those after it, for the whole sentence is known": (
            _changed(encoder=lambda mask, words: mask.tril())
        ),
        "the encoder reads the padding of the source": _changed(encoder=lambda mask, words: torch.ones_like(mask)),
        "the decoder's mask is not causal: in training each word would see the one that it should predict": (
            _changed(decoder=lambda mask, words: words.expand_as(mask))
        ),
        (
            "causal alone is enough for every word, since padding comes last; but padded queries see padding in the "
            "decoder, which the exercise forbids"
        ): _changed(decoder=lambda mask, words: torch.ones_like(mask).tril()),
        "the decoder sees itself and the future: `tril` keeps the past, `triu` what comes later": (
            _changed(decoder=lambda mask, words: words.expand_as(mask).triu())
        ),
        "a target word may attend to itself: the inputs are shifted already, so j ≤ i, not j < i": (
            _changed(decoder=lambda mask, words: mask.tril(-1))
        ),
        "cross-attention reads the padding of the source: its keys are the encoder's, and some are padding": (
            _changed(cross=lambda mask, words: torch.ones_like(mask))
        ),
        "cross-attention is masked by the lengths of the target: its keys are the words of the source": (
            _changed(cross=lambda mask, words: words.repeat(1, mask.shape[1], 1))
        ),
        (
            "cross-attention counts the words of the source by the lengths of the target: its keys are the source's, "
            "and so are the lengths that hide their padding"
        ): lambda source, target: (
            *three_masks.reference(source, target)[:2],
            (torch.arange(int(source.max())) < target[:, None])[:, None].repeat(1, int(target.max()), 1),
        ),
        (
            "cross-attention blocks the padded queries of the target and lets everyone read the padding of the source: "
            "the lengths belong to the keys"
        ): _changed(cross=lambda mask, words: words.mT.expand_as(mask)),
        "cross-attention is causal: target word i may read every source word, since word orders differ": (
            _changed(cross=lambda mask, words: mask.tril())
        ),
        "the axes of cross-attention are exchanged: queries come from the target, keys from the source": (
            _changed(cross=lambda mask, words: mask.mT)
        ),
        "one position too many: positions count from 0, so the last of 3 words stands at 2": (
            lambda source, target: tuple(mask[:, :-1, :-1] for mask in three_masks.reference(source + 1, target + 1))
        ),
        "cross-attention blocks padded queries as well; leave their rows like the others": (
            _changed(cross=lambda mask, words: mask & words.mT)
        ),
        "the encoder blocks padded queries as well; leave their rows like the others": (
            _changed(encoder=lambda mask, words: mask & mask.mT)
        ),
        "padded queries are blocked as well; leave them alone: nobody reads what they find": _changed(
            encoder=lambda mask, words: mask & mask.mT,
            decoder=lambda mask, words: mask & words.mT,
            cross=lambda mask, words: mask & words.mT,
        ),
        "the masks are the wrong way round: True means 'may attend'": (
            lambda source, target: tuple(~mask for mask in three_masks.reference(source, target))
        ),
        "right, and broadcasting would do the rest; here the masks have a row for each query: `expand`": (
            _changed(encoder=lambda mask, words: mask[:, :1], cross=lambda mask, words: mask[:, :1])
        ),
    }
)

# ---- find the bug ------------------------------------------------------------------------------------------------


Model = Callable[[Tensor, Tensor], Tensor]  # (source, inputs) → logits for the word after each of the inputs


def _causal_model(source: Tensor, inputs: Tensor, table: Tensor) -> Tensor:
    """Each row of logits depends on the source and on the inputs so far."""
    return table[inputs].cumsum(dim=1) + table[source].mean(dim=1, keepdim=True)


def _model_and_words() -> list[tuple[Model, Tensor, Tensor]]:
    """1 is <bos>, 2 is <eos>; the model's table is what it learns."""
    model = partial(_causal_model, table=2 * randn(9, 9, seed=13))
    return [
        (model, torch.tensor([[5, 6], [7, 8]]), torch.tensor([[1, 4, 5, 6, 2], [1, 7, 2, 0, 0]])),
        (model, torch.tensor([[8, 4, 5]]), torch.tensor([[1, 8, 8, 2]])),
    ]


@exercise(
    cases=_model_and_words,
    hints=[
        "At each position, write down the last word that the decoder has read and the word that it has to predict.",
        "They are the same: copying is enough. When it translates, the decoder has read `<bos>` and the words before.",
    ],
)
def training_loss(model: Model, source: Tensor, target: Tensor) -> Tensor:
    words = target[:, 1:]
    logits = model(source, target[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten(), ignore_index=PAD)


@training_loss.given
def _(model: Model, source: Tensor, target: Tensor) -> Tensor:
    words = target[:, 1:]
    logits = model(source, words)
    return nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten(), ignore_index=PAD)


def _loss(logits: Tensor, words: Tensor, ignore: int = PAD) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten(), ignore_index=ignore)


training_loss.mistakes(
    {
        "`cross_entropy` takes scores and applies the softmax itself: give it the logits": (
            lambda model, source, target: _loss(model(source, target[:, :-1]).softmax(dim=-1), target[:, 1:])
        ),
        (
            "inputs and targets are still the same words, only others: the word to predict is the one after the last "
            "word read"
        ): lambda model, source, target: _loss(model(source, target[:, :-1]), target[:, :-1]),
        (
            "inputs and targets are still the same words, now with `<bos>`: the word to predict is the one after the "
            "last word read"
        ): lambda model, source, target: _loss(model(source, target), target),
        "the logits are one place too late: those at `<bos>` are for the first word, so leave out the last ones": (
            lambda model, source, target: _loss(model(source, target)[:, 1:], target[:, 1:])
        ),
        "the wrong direction: the decoder reads a word and predicts the one before it, which it has read already": (
            lambda model, source, target: _loss(model(source, target[:, 1:]), target[:, :-1])
        ),
        "shifted twice, in the inputs and in the logits: the decoder learns to predict the word after the next one": (
            lambda model, source, target: _loss(model(source, target[:, :-1])[:, :-1], target[:, 2:])
        ),
        "rolled round: a sentence begins with its own last word, `<eos>` or padding, in the place of `<bos>`": (
            lambda model, source, target: _loss(model(source, target[:, 1:].roll(1, dims=1)), target[:, 1:])
        ),
        "nothing leaks now, but this is the sum over the words: the loss was their mean": (
            lambda model, source, target: training_loss.reference(model, source, target) * (target[:, 1:] != PAD).sum()
        ),
        "nothing leaks now, but first comes a mean in each sentence: words of short ones would weigh more": (
            lambda model, source, target: torch.stack(
                [training_loss.reference(model, *(x[None] for x in pair)) for pair in zip(source, target, strict=True)]
            ).mean()
        ),
        "nothing leaks now, but padding counts as a word to predict: `ignore_index` was right": (
            lambda model, source, target: _loss(model(source, target[:, :-1]), target[:, 1:], ignore=-100)
        ),
        (
            "the leak is closed by hiding all words: the decoder may read `<bos>` and all true words "
            "before the one to predict"
        ): lambda model, source, target: _loss(model(source, target[:, :1].expand_as(target[:, 1:])), target[:, 1:]),
    }
)
