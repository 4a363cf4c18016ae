"""Exercises of lesson 05: the parts of a Transformer by hand, its masks, its training and its beam search."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tfbook.data import PAD
from tfbook.exercises.engine import exercise, randn

# ---- layer normalisation -----------------------------------------------------------------------------------------


def _vectors_gain_and_shift() -> list[tuple[Tensor, Tensor, Tensor, float]]:
    # as many sentences as positions and features, so that a wrong axis gives a wrong number and no error about shapes
    def inputs(size: int, epsilon: float, seed: int) -> tuple[Tensor, Tensor, Tensor, float]:
        x = 1 + randn(size, size, size, seed=seed)
        x[0, 0] = 0.5  # a vector of equal entries has variance 0
        return x, 1 + randn(size, seed=seed + 1), randn(size, seed=seed + 2), epsilon

    return [inputs(3, 0.1, 1), inputs(4, 1e-3, 4)]


@exercise(
    cases=_vectors_gain_and_shift,
    hints=[
        "Each vector is normalised on its own: means over the last axis, which `keepdim=True` keeps for broadcasting.",
        "The variance is the mean of the squared deviations: `x.var(dim=-1, keepdim=True, correction=0)`. ε is "
        "added to it under the root.",
    ],
)
def normalise(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return gain * centred / (variance + epsilon).sqrt() + shift


def _normalised(x: Tensor, epsilon: float, dims: tuple[int, ...] = (-1,)) -> Tensor:
    centred = x - x.mean(dim=dims, keepdim=True)
    return centred / (centred.square().mean(dim=dims, keepdim=True) + epsilon).sqrt()


@normalise.mistake(
    "this is batch normalisation: each feature over all sentences and positions; here each vector is alone"
)
def _(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    return gain * _normalised(x, epsilon, (0, 1)) + shift


@normalise.mistake(
    "mean and variance run over the batch: a sentence would change with its neighbours; take the last axis"
)
def _(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    return gain * _normalised(x, epsilon, (0,)) + shift


@normalise.mistake("mean and variance run over the positions, so that a word would see later ones; take the last axis")
def _(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    return gain * _normalised(x, epsilon, (1,)) + shift


@normalise.mistake("mean and variance are a whole sentence's: each position has its own, over its features alone")
def _(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    return gain * _normalised(x, epsilon, (1, 2)) + shift


@normalise.mistake("one mean and one variance serve the whole batch: each vector has its own, over its features alone")
def _(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    return gain * _normalised(x, epsilon, (0, 1, 2)) + shift


@normalise.mistake("the means lost their axis and line up with (time, d_model): `keepdim=True`")
def _(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    return gain * (x - x.mean(dim=-1)) / (x.var(dim=-1, correction=0) + epsilon).sqrt() + shift


@normalise.mistake("the variance divides by d_model − 1, as `var` and `std` do unless told `correction=0`")
def _(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    return gain * centred / (x.var(dim=-1, keepdim=True) + epsilon).sqrt() + shift


@normalise.mistake("ε stands outside the root: it is added to the variance, not to the standard deviation")
def _(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    return gain * centred / (x.std(dim=-1, keepdim=True, correction=0) + epsilon) + shift


@normalise.mistake(
    "two things about the root: `std` divides by d_model − 1 unless told `correction=0`, and ε belongs under it"
)
def _(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    return gain * centred / (x.std(dim=-1, keepdim=True) + epsilon) + shift


@normalise.mistake("ε is missing: a vector of equal entries becomes 0/0")
def _(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    return gain * _normalised(x, 0.0) + shift


@normalise.mistake("the root is missing: divided by its variance, a vector gets variance 1/σ²")
def _(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    return gain * centred / (centred.square().mean(dim=-1, keepdim=True) + epsilon) + shift


@normalise.mistake("the gain comes first, and normalising undoes most of it: it multiplies what is normalised")
def _(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    return _normalised(gain * x, epsilon) + shift


@normalise.mistake("the shift is multiplied by the gain: add it last")
def _(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    return gain * (_normalised(x, epsilon) + shift)


@normalise.mistake("right so far: each vector is normalised; its gain and its shift are missing")
def _(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    return _normalised(x, epsilon)


@normalise.mistake("the mean is still there: this is RMS normalisation, which divides and does not centre")
def _(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    return gain * x / (x.square().mean(dim=-1, keepdim=True) + epsilon).sqrt() + shift


# ---- a block -----------------------------------------------------------------------------------------------------

Layer = Callable[[Tensor], Tensor]


def _attention(x: Tensor) -> Tensor:
    """A mean over the past, in attention's place."""
    return x.cumsum(dim=1) / torch.arange(1, x.shape[1] + 1)[:, None]


def _feed_forward(x: Tensor) -> Tensor:
    """A bend for each entry, in the place of the feed-forward net."""
    return x.relu() - 0.5 * x.square()


def _norm(gain: float) -> Layer:
    return lambda x: gain * nn.functional.layer_norm(x, x.shape[-1:])


def _x_and_layers() -> list[tuple[Tensor, Layer, Layer, Layer, Layer]]:
    return [(3 * randn(2, 3, 4, seed=7), _attention, _feed_forward, _norm(0.5), _norm(2.0))]


@exercise(
    cases=_x_and_layers,
    hints=[
        "Two branches, one after the other. Each reads a normed copy of x and adds what it finds to x itself.",
        "`x = x + layer(norm(x))`, twice. The second branch reads what the first has left.",
    ],
)
def pre_norm_block(
    x: Tensor, attention: Layer, feed_forward: Layer, attention_norm: Layer, feed_forward_norm: Layer
) -> Tensor:
    x = x + attention(attention_norm(x))
    return x + feed_forward(feed_forward_norm(x))


@pre_norm_block.mistake(
    "this is post-norm: the norm stands behind the sum, on the road that should lead through the stack untouched"
)
def _(x: Tensor, attend: Layer, feed: Layer, norm_1: Layer, norm_2: Layer) -> Tensor:
    x = norm_1(x + attend(x))
    return norm_2(x + feed(x))


@pre_norm_block.mistake("what you add to is the normed x: only the branch reads it, the sum keeps x itself")
def _(x: Tensor, attend: Layer, feed: Layer, norm_1: Layer, norm_2: Layer) -> Tensor:
    x = norm_1(x)
    x = norm_2(x + attend(x))
    return x + feed(x)


@pre_norm_block.mistake("nothing is normed: both branches read x as it is")
def _(x: Tensor, attend: Layer, feed: Layer, norm_1: Layer, norm_2: Layer) -> Tensor:
    x = x + attend(x)
    return x + feed(x)


@pre_norm_block.mistake("the feed-forward net reads x without a norm")
def _(x: Tensor, attend: Layer, feed: Layer, norm_1: Layer, norm_2: Layer) -> Tensor:
    x = x + attend(norm_1(x))
    return x + feed(x)


@pre_norm_block.mistake("attention reads x without a norm")
def _(x: Tensor, attend: Layer, feed: Layer, norm_1: Layer, norm_2: Layer) -> Tensor:
    x = x + attend(x)
    return x + feed(norm_2(x))


@pre_norm_block.mistake("one norm serves both branches: each has its own, with its own gain")
def _(x: Tensor, attend: Layer, feed: Layer, norm_1: Layer, norm_2: Layer) -> Tensor:
    x = x + attend(norm_1(x))
    return x + feed(norm_1(x))


@pre_norm_block.mistake("the norms are exchanged: each branch has its own")
def _(x: Tensor, attend: Layer, feed: Layer, norm_1: Layer, norm_2: Layer) -> Tensor:
    x = x + attend(norm_2(x))
    return x + feed(norm_1(x))


@pre_norm_block.mistake("the norm stands behind each branch; here the branch begins with it")
def _(x: Tensor, attend: Layer, feed: Layer, norm_1: Layer, norm_2: Layer) -> Tensor:
    x = x + norm_1(attend(x))
    return x + norm_2(feed(x))


@pre_norm_block.mistake("the branches run side by side: the second should read what the first has left")
def _(x: Tensor, attend: Layer, feed: Layer, norm_1: Layer, norm_2: Layer) -> Tensor:
    return x + attend(norm_1(x)) + feed(norm_2(x))


@pre_norm_block.mistake("the second sum forgets what attention found: add to the x that it has left")
def _(x: Tensor, attend: Layer, feed: Layer, norm_1: Layer, norm_2: Layer) -> Tensor:
    found = x + attend(norm_1(x))
    return x + feed(norm_2(found))


@pre_norm_block.mistake("attention has no residual: what it does not find is lost")
def _(x: Tensor, attend: Layer, feed: Layer, norm_1: Layer, norm_2: Layer) -> Tensor:
    x = attend(norm_1(x))
    return x + feed(norm_2(x))


@pre_norm_block.mistake("the feed-forward net has no residual: x ends with it")
def _(x: Tensor, attend: Layer, feed: Layer, norm_1: Layer, norm_2: Layer) -> Tensor:
    x = x + attend(norm_1(x))
    return feed(norm_2(x))


@pre_norm_block.mistake("no branch is added to anything: this is a chain of layers without residuals")
def _(x: Tensor, attend: Layer, feed: Layer, norm_1: Layer, norm_2: Layer) -> Tensor:
    return feed(norm_2(attend(norm_1(x))))


@pre_norm_block.mistake("the feed-forward net comes first; attention should")
def _(x: Tensor, attend: Layer, feed: Layer, norm_1: Layer, norm_2: Layer) -> Tensor:
    x = x + feed(norm_2(x))
    return x + attend(norm_1(x))


# ---- the schedule ------------------------------------------------------------------------------------------------


def _steps_width_and_warmup() -> list[tuple[Tensor, int, int]]:
    return [(torch.arange(12), 16, 4), (torch.tensor([0, 9, 10, 11, 400]), 64, 10)]


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


@learning_rate.mistake("your first step has rate 0 and changes nothing: `steps` counts from 0 and t from 1")
def _(steps: Tensor, d_model: int, warmup: int) -> Tensor:
    return d_model**-0.5 * torch.minimum(steps**-0.5, steps * warmup**-1.5)


@learning_rate.mistake(
    "the larger of the two: it begins at its highest, falls until the warm-up ends and then rises for ever"
)
def _(steps: Tensor, d_model: int, warmup: int) -> Tensor:
    t = steps + 1
    return d_model**-0.5 * torch.maximum(t**-0.5, t * warmup**-1.5)


@learning_rate.mistake("it rises and then stays: after the warm-up the rate falls with t^(−1/2)")
def _(steps: Tensor, d_model: int, warmup: int) -> Tensor:
    return (d_model * warmup) ** -0.5 * ((steps + 1) / warmup).clamp(max=1)


@learning_rate.mistake("there is no warm-up: it begins at its highest")
def _(steps: Tensor, d_model: int, warmup: int) -> Tensor:
    return d_model**-0.5 * (steps + 1) ** -0.5


@learning_rate.mistake("there is only the warm-up: it rises for ever")
def _(steps: Tensor, d_model: int, warmup: int) -> Tensor:
    return d_model**-0.5 * (steps + 1) * warmup**-1.5


@learning_rate.mistake("d_model is missing: wider models train at smaller rates")
def _(steps: Tensor, d_model: int, warmup: int) -> Tensor:
    return learning_rate.reference(steps, 1, warmup)


@learning_rate.mistake("wider models would train at larger rates: the exponent of d_model is −1/2")
def _(steps: Tensor, d_model: int, warmup: int) -> Tensor:
    return d_model * learning_rate.reference(steps, d_model, warmup)


@learning_rate.mistake("this peaks at 1, as `train.inverse_sqrt` does: a factor for a rate that is given elsewhere")
def _(steps: Tensor, d_model: int, warmup: int) -> Tensor:
    return (d_model * warmup) ** 0.5 * learning_rate.reference(steps, d_model, warmup)


@learning_rate.mistake("the lines do not meet at t = warmup: the exponent of warmup is −3/2, not −1/2")
def _(steps: Tensor, d_model: int, warmup: int) -> Tensor:
    t = steps + 1
    return d_model**-0.5 * torch.minimum(t**-0.5, t * warmup**-0.5)


# ---- three masks -------------------------------------------------------------------------------------------------


Masks = tuple[Tensor, Tensor, Tensor]


def _source_and_target_lengths() -> list[tuple[Tensor, Tensor]]:
    # as many source as target positions in the first case, so that a mask of the other side raises no error
    return [(torch.tensor([4, 2, 1]), torch.tensor([2, 4, 3])), (torch.tensor([3, 1]), torch.tensor([2, 5]))]


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


def _words(lengths: Tensor) -> Tensor:
    """True where there is a word: (batch, 1, time)."""
    return (torch.arange(int(lengths.max())) < lengths[:, None])[:, None]


def _causal(size: int) -> Tensor:
    return torch.ones(size, size, dtype=torch.bool).tril()


@three_masks.mistake(
    "the encoder's mask is causal: a source word may read those after it, for the whole sentence is known"
)
def _(source_lengths: Tensor, target_lengths: Tensor) -> Masks:
    encoder, decoder, cross = three_masks.reference(source_lengths, target_lengths)
    return encoder & _causal(encoder.shape[1]), decoder, cross


@three_masks.mistake("the encoder reads the padding of the source")
def _(source_lengths: Tensor, target_lengths: Tensor) -> Masks:
    encoder, decoder, cross = three_masks.reference(source_lengths, target_lengths)
    return torch.ones_like(encoder), decoder, cross


@three_masks.mistake("the decoder's mask is not causal: in training each word would see the one that it should predict")
def _(source_lengths: Tensor, target_lengths: Tensor) -> Masks:
    encoder, decoder, cross = three_masks.reference(source_lengths, target_lengths)
    return encoder, _words(target_lengths).expand_as(decoder), cross


@three_masks.mistake(
    "causal alone is enough for every word, since padding comes last; but padded queries see padding in the "
    "decoder, which the exercise forbids"
)
def _(source_lengths: Tensor, target_lengths: Tensor) -> Masks:
    encoder, decoder, cross = three_masks.reference(source_lengths, target_lengths)
    return encoder, _causal(decoder.shape[1]).expand_as(decoder), cross


@three_masks.mistake("the decoder sees itself and the future: `tril` keeps the past, `triu` what comes later")
def _(source_lengths: Tensor, target_lengths: Tensor) -> Masks:
    encoder, decoder, cross = three_masks.reference(source_lengths, target_lengths)
    return encoder, _words(target_lengths) & _causal(decoder.shape[1]).T, cross


@three_masks.mistake("a target word may attend to itself: the inputs are shifted already, so j ≤ i, not j < i")
def _(source_lengths: Tensor, target_lengths: Tensor) -> Masks:
    encoder, decoder, cross = three_masks.reference(source_lengths, target_lengths)
    return encoder, decoder.tril(-1), cross


@three_masks.mistake(
    "cross-attention reads the padding of the source: its keys are the encoder's, and some are padding"
)
def _(source_lengths: Tensor, target_lengths: Tensor) -> Masks:
    encoder, decoder, cross = three_masks.reference(source_lengths, target_lengths)
    return encoder, decoder, torch.ones_like(cross)


@three_masks.mistake("cross-attention is masked by the lengths of the target: its keys are the words of the source")
def _(source_lengths: Tensor, target_lengths: Tensor) -> Masks:
    encoder, decoder, _ = three_masks.reference(source_lengths, target_lengths)
    return encoder, decoder, _words(target_lengths).expand_as(decoder)


@three_masks.mistake(
    "cross-attention blocks the padded queries of the target and lets everyone read the padding of the source: the "
    "lengths belong to the keys"
)
def _(source_lengths: Tensor, target_lengths: Tensor) -> Masks:
    encoder, decoder, cross = three_masks.reference(source_lengths, target_lengths)
    return encoder, decoder, _words(target_lengths).mT.expand_as(cross)


@three_masks.mistake("cross-attention is causal: target word i may read every source word, since word orders differ")
def _(source_lengths: Tensor, target_lengths: Tensor) -> Masks:
    encoder, decoder, cross = three_masks.reference(source_lengths, target_lengths)
    return encoder, decoder, cross.tril()


@three_masks.mistake("the axes of cross-attention are exchanged: queries come from the target, keys from the source")
def _(source_lengths: Tensor, target_lengths: Tensor) -> Masks:
    encoder, decoder, cross = three_masks.reference(source_lengths, target_lengths)
    return encoder, decoder, cross.mT


@three_masks.mistake("one position too many: positions count from 0, so the last of 3 words stands at 2")
def _(source_lengths: Tensor, target_lengths: Tensor) -> Masks:
    encoder, decoder, cross = three_masks.reference(source_lengths, target_lengths)
    source, target = (
        (torch.arange(int(lengths.max())) <= lengths[:, None])[:, None] for lengths in (source_lengths, target_lengths)
    )
    return source.expand_as(encoder), target & _causal(decoder.shape[1]), source.expand_as(cross)


@three_masks.mistake("padded queries are blocked as well; leave them alone: nobody reads what they find")
def _(source_lengths: Tensor, target_lengths: Tensor) -> Masks:
    encoder, decoder, cross = three_masks.reference(source_lengths, target_lengths)
    source, target = _words(source_lengths).mT, _words(target_lengths).mT
    return encoder & source, decoder & target, cross & target


@three_masks.mistake("the masks are the wrong way round: True means 'may attend'")
def _(source_lengths: Tensor, target_lengths: Tensor) -> Masks:
    encoder, decoder, cross = three_masks.reference(source_lengths, target_lengths)
    return ~encoder, ~decoder, ~cross


@three_masks.mistake("right, and broadcasting would do the rest; here the masks have a row for each query: `expand`")
def _(source_lengths: Tensor, target_lengths: Tensor) -> Masks:
    words = _words(source_lengths)
    return words, three_masks.reference(source_lengths, target_lengths)[1], words


# ---- label smoothing ---------------------------------------------------------------------------------------------


def _logits_and_targets() -> list[tuple[Tensor, Tensor, float, int]]:
    return [
        (2 * randn(2, 3, 5, seed=8), torch.tensor([[3, 1, 4], [2, 0, 0]]), 0.1, 0),
        (2 * randn(1, 4, 6, seed=9), torch.tensor([[5, 0, 2, 1]]), 0.3, 1),
    ]


@exercise(
    cases=_logits_and_targets,
    hints=[
        "`log_softmax` gives the log-probabilities of all words. The cross-entropy with a distribution is minus the "
        "sum of its probabilities times these.",
        "(1 − ε) times the target's log-probability plus ε times the mean of all. `gather` or `nn.functional.one_hot` "
        "picks the target's; `targets != pad` says which positions count.",
    ],
)
def smoothed_loss(logits: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
    logp = torch.log_softmax(logits, dim=-1)
    right = logp.gather(-1, targets[..., None])[..., 0]
    losses = -(1 - epsilon) * right - epsilon * logp.mean(dim=-1)
    return losses[targets != pad].mean()


def _right_and_mean(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the targets, and the mean over all words: (batch, time) each."""
    logp = torch.log_softmax(logits, dim=-1)
    return logp.gather(-1, targets[..., None])[..., 0], logp.mean(dim=-1)


@smoothed_loss.mistake("nothing is smoothed: this is the cross-entropy with the target word alone")
def _(logits: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
    return smoothed_loss.reference(logits, targets, 0.0, pad)


@smoothed_loss.mistake(
    "ε is spread over the other words only; here the target has its share of it as well, 1 − ε + ε / vocab in all"
)
def _(logits: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
    vocab = logits.shape[-1]
    return smoothed_loss.reference(logits, targets, epsilon * vocab / (vocab - 1), pad)


@smoothed_loss.mistake("the probabilities sum to less than 1: the target has 1 − ε, and its own share of ε is missing")
def _(logits: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
    right, mean = _right_and_mean(logits, targets)
    share = epsilon / logits.shape[-1]
    return -((1 - epsilon - share) * right + epsilon * mean)[targets != pad].mean()


@smoothed_loss.mistake(
    "ε is spread over all words but the target and the padding; here all words of the vocabulary share it"
)
def _(logits: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
    logp = torch.log_softmax(logits, dim=-1)
    right, padding = logp.gather(-1, targets[..., None])[..., 0], logp[..., pad]
    others = (logp.sum(dim=-1) - right - padding) / (logits.shape[-1] - 2)
    return -((1 - epsilon) * right + epsilon * others)[targets != pad].mean()


@smoothed_loss.mistake("the target keeps probability 1, so that all together have 1 + ε: give it 1 − ε")
def _(logits: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
    right, mean = _right_and_mean(logits, targets)
    return -(right + epsilon * mean)[targets != pad].mean()


@smoothed_loss.mistake("ε and 1 − ε are exchanged: most of the probability belongs to the target")
def _(logits: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
    return smoothed_loss.reference(logits, targets, 1 - epsilon, pad)


@smoothed_loss.mistake("each word gets ε; together they share it, so that each gets ε / vocab: mean, not sum")
def _(logits: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
    right, mean = _right_and_mean(logits, targets)
    return -((1 - epsilon) * right + epsilon * logits.shape[-1] * mean)[targets != pad].mean()


@smoothed_loss.mistake("you smoothed what the model says; smooth what it should say: the sum is over log-probabilities")
def _(logits: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
    right, _ = _right_and_mean(logits, targets)
    smoothed = (1 - epsilon) * right.exp() + epsilon / logits.shape[-1]
    return -smoothed.log()[targets != pad].mean()


@smoothed_loss.mistake("padding is counted: the model would be trained to say it")
def _(logits: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
    return smoothed_loss.reference(logits, targets, epsilon, -1)


@smoothed_loss.mistake(
    "padding adds 0 but is counted in the mean: a batch with more of it would seem easier; divide by the words alone"
)
def _(logits: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
    return smoothed_loss.reference(logits, targets, epsilon, pad) * (targets != pad).float().mean()


@smoothed_loss.mistake("this is the sum; the loss is the mean over the words that count")
def _(logits: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
    return smoothed_loss.reference(logits, targets, epsilon, pad) * (targets != pad).sum()


@smoothed_loss.mistake(
    "first a mean in each sentence, then one over sentences: words of short sentences would weigh more"
)
def _(logits: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
    rows = zip(logits, targets, strict=True)
    return torch.stack([smoothed_loss.reference(*row, epsilon, pad) for row in rows]).mean()


@smoothed_loss.mistake("the sign: a loss falls as the target's log-probability rises")
def _(logits: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
    return -smoothed_loss.reference(logits, targets, epsilon, pad)


# ---- one step of a beam search -----------------------------------------------------------------------------------


Step = tuple[Tensor, Tensor, Tensor]  # parents, words, scores


def _beams() -> list[tuple[Tensor, Tensor, int]]:
    def inputs(scores: list[float], vocab: int, width: int, seed: int) -> tuple[Tensor, Tensor, int]:
        logits = 2 * randn(len(scores), vocab, seed=seed)
        return torch.tensor(scores), torch.log_softmax(logits, dim=-1), width

    return [
        inputs([-1.0, -1.2, -3.5], 6, 3, 10),
        inputs([-2.0, -2.1], 4, 2, 11),
        inputs([0.0, -torch.inf, -torch.inf], 5, 3, 12),  # the first step: all beams are the same text, one counts
    ]


@exercise(
    cases=_beams,
    hints=[
        "The log-probability of a longer text is a sum. `scores[:, None] + logp` holds all (beam, vocab) of them.",
        "`totals.flatten().topk(width)` finds the best of all. A place p of the flat list belongs to beam p // vocab "
        "and word p % vocab.",
    ],
)
def beam_step(scores: Tensor, logp: Tensor, width: int) -> Step:
    totals, places = (scores[:, None] + logp).flatten().topk(width)
    vocab = logp.shape[1]
    return places // vocab, places % vocab, totals


@beam_step.mistake(
    "each beam keeps one continuation, its best; the best of all may continue the same beam, while another dies"
)
def _(scores: Tensor, logp: Tensor, width: int) -> Step:
    best, words = (scores[:, None] + logp).max(dim=1)
    totals, parents = best.topk(width)
    return parents, words[parents], totals


@beam_step.mistake(
    "each beam keeps one continuation, and in the order of the beams: the best of all, best first, may share a parent"
)
def _(scores: Tensor, logp: Tensor, width: int) -> Step:
    best, words = (scores[:, None] + logp).max(dim=1)
    return torch.arange(len(scores)), words, best


@beam_step.mistake("only the best beam is continued: the others are not lost yet, and may give better texts")
def _(scores: Tensor, logp: Tensor, width: int) -> Step:
    best = scores.argmax()
    totals, words = (scores[best] + logp[best]).topk(width)
    return best.expand(width), words, totals


@beam_step.mistake(
    "what the beams have cost so far is forgotten: a text's log-probability is its beam's plus that of the new word"
)
def _(scores: Tensor, logp: Tensor, width: int) -> Step:
    return beam_step.reference(torch.zeros_like(scores), logp, width)


@beam_step.mistake("logarithms are multiplied: probabilities multiply, so their logarithms add")
def _(scores: Tensor, logp: Tensor, width: int) -> Step:
    totals, places = (scores[:, None] * logp).flatten().topk(width)
    return places // logp.shape[1], places % logp.shape[1], totals


@beam_step.mistake("the words are places in the flat list of all continuations: word p % vocab of beam p // vocab")
def _(scores: Tensor, logp: Tensor, width: int) -> Step:
    totals, places = (scores[:, None] + logp).flatten().topk(width)
    return places // logp.shape[1], places, totals


@beam_step.mistake(
    "parents and words are exchanged: the list runs through the words of beam 0 first, so p // vocab is the beam"
)
def _(scores: Tensor, logp: Tensor, width: int) -> Step:
    parents, words, totals = beam_step.reference(scores, logp, width)
    return words, parents, totals


@beam_step.mistake(
    "a beam's row in the flat list is as long as the vocabulary: divide by that, not by the number of beams"
)
def _(scores: Tensor, logp: Tensor, width: int) -> Step:
    totals, places = (scores[:, None] + logp).flatten().topk(width)
    return places // len(scores), places % len(scores), totals


@beam_step.mistake("these are the worst texts: the largest log-probability is the one nearest to 0")
def _(scores: Tensor, logp: Tensor, width: int) -> Step:
    totals, places = (scores[:, None] + logp).flatten().topk(width, largest=False)
    return places // logp.shape[1], places % logp.shape[1], totals


@beam_step.mistake("the right texts, but best last: begin with the most probable")
def _(scores: Tensor, logp: Tensor, width: int) -> Step:
    return tuple(found.flip(0) for found in beam_step.reference(scores, logp, width))


@beam_step.mistake("the scores are those of the new words alone; the next step needs those of the whole texts")
def _(scores: Tensor, logp: Tensor, width: int) -> Step:
    parents, words, _ = beam_step.reference(scores, logp, width)
    return parents, words, logp[parents, words]


@beam_step.mistake(
    "these are probabilities; return logarithms: in float32 a text of fifty words would have probability 0"
)
def _(scores: Tensor, logp: Tensor, width: int) -> Step:
    parents, words, totals = beam_step.reference(scores, logp, width)
    return parents, words, totals.exp()


# ---- find the bug ------------------------------------------------------------------------------------------------


Model = Callable[[Tensor, Tensor], Tensor]  # (source, inputs) → logits for the word after each of the inputs


def _model_and_words() -> list[tuple[Model, Tensor, Tensor]]:
    """A causal model: each row of logits depends on the source and on the inputs so far. 1 is <bos>, 2 is <eos>."""
    table = 2 * randn(9, 9, seed=13)

    def model(source: Tensor, inputs: Tensor) -> Tensor:
        return table[inputs].cumsum(dim=1) + table[source].mean(dim=1, keepdim=True)

    return [
        (model, torch.tensor([[5, 6], [7, 8]]), torch.tensor([[1, 4, 5, 6, 2], [1, 7, 2, 0, 0]])),
        (model, torch.tensor([[8, 4, 5]]), torch.tensor([[1, 8, 8, 2]])),
    ]


@exercise(
    cases=_model_and_words,
    hints=[
        "At each position, write down the last word that the decoder has read and the word that it shall say.",
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


@training_loss.mistake(
    "inputs and targets are still the same words, only others: the word to say must be the one after the last word read"
)
def _(model: Model, source: Tensor, target: Tensor) -> Tensor:
    return _loss(model(source, target[:, :-1]), target[:, :-1])


@training_loss.mistake(
    "inputs and targets are still the same words, now with `<bos>`: the word to say is the one after the last word read"
)
def _(model: Model, source: Tensor, target: Tensor) -> Tensor:
    return _loss(model(source, target), target)


@training_loss.mistake(
    "the wrong direction: the decoder reads a word and says the one before it, which it has read already"
)
def _(model: Model, source: Tensor, target: Tensor) -> Tensor:
    return _loss(model(source, target[:, 1:]), target[:, :-1])


@training_loss.mistake(
    "shifted twice, in the inputs and in the logits: the decoder learns to say the word after the next one"
)
def _(model: Model, source: Tensor, target: Tensor) -> Tensor:
    return _loss(model(source, target[:, :-1])[:, :-1], target[:, 2:])


@training_loss.mistake(
    "rolled round: a sentence begins with its own last word, `<eos>` or padding, in the place of `<bos>`"
)
def _(model: Model, source: Tensor, target: Tensor) -> Tensor:
    words = target[:, 1:]
    return _loss(model(source, words.roll(1, dims=1)), words)


@training_loss.mistake("nothing leaks now, but padding counts as a word to say: `ignore_index` was right")
def _(model: Model, source: Tensor, target: Tensor) -> Tensor:
    return _loss(model(source, target[:, :-1]), target[:, 1:], ignore=-100)


@training_loss.mistake(
    "the leak is closed by hiding all words: the decoder may read `<bos>` and all true words before the one to say"
)
def _(model: Model, source: Tensor, target: Tensor) -> Tensor:
    words = target[:, 1:]
    return _loss(model(source, target[:, :1].expand_as(words)), words)
