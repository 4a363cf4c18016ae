"""Random cases: whatever parts fit together, at any scale of weights, dtype and length, keep the invariants.

400 models and 1,200 cases of attention, the same ones at every run. For as many models as you like, and three times as
many cases of attention, which differ from run to run, as every week (.github/workflows/weekly.yml):

    TFBOOK_CASES=4000 python -m pytest tests/invariants/test_random_cases.py
"""

import math
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from drawn_cases import AttentionCase, ModelCase, attention_cases, model_cases
from drawn_subjects import VOCAB, FrozenSubject, LanguageSubject, Subject, TransformerSubject
from hypothesis import HealthCheck, Phase, given, settings
from torch import Tensor
from torch.nn import functional as F

from tfbook.attention import Mask, softmax, supports_of
from tfbook.attention.efficient import Linear, Lsh, Performer, elu_plus_one, log_features
from tfbook.generation import sampling
from tfbook.generation.frozen import Frozen
from tfbook.generation.search import NEVER_GENERATED, VASWANI_PENALTY, beam_search, greedy_search
from tfbook.text.vocabulary import BOS, PAD

MODELS = int(os.environ.get("TFBOOK_CASES", "400"))


def cases(count: int) -> Callable[[Any], Any]:
    """So many cases. Failures are not explained: that traces every line, and Python 3.11 has hung in it."""
    return settings(
        max_examples=count,
        derandomize="TFBOOK_CASES" not in os.environ,
        suppress_health_check=[*HealthCheck],
        phases=[phase for phase in Phase if phase is not Phase.explain],
    )


def gap(found: Tensor, expected: Tensor) -> float:
    """The largest difference, of numbers that are finite."""
    assert found.shape == expected.shape
    assert found.isfinite().all()
    return float((found.detach().double() - expected.detach().double()).abs().max()) if found.numel() else 0.0


# ---- implementations ---------------------------------------------------------------------------------------------


def visible(case: AttentionCase) -> Tensor:
    """Which query sees which key, by the mask to which the implementation narrows the one that it is given."""
    implementation, q, k, _, mask, bias, _ = case
    wide = torch.promote_types(q.dtype, torch.float32)  # in which it hashes
    used = implementation.mask(q.to(wide), k.to(wide), mask) if hasattr(implementation, "mask") else mask
    shape = (*q.shape[:3], k.shape[2])
    allowed = torch.ones(shape, dtype=torch.bool) if used is None else used.dense(*shape[2:]).expand(shape)
    return allowed if bias is None else allowed & ~bias.isneginf()


def log_weights(case: AttentionCase) -> tuple[Tensor, float]:
    """The logarithm of each weight before it is normalized, in float64, and the largest number on the way."""
    implementation, q, k = case.implementation, case.q.detach().double(), case.k.detach().double()
    if isinstance(implementation, Performer):
        directions = implementation.directions(q.shape[-1]).double()
        log_q, log_k = log_features(q, directions), log_features(k, directions)
        size = float(log_q.abs().max() + log_k.abs().max())
        return (log_q[..., None, :] + log_k[..., None, :, :]).logsumexp(dim=-1), size
    if isinstance(implementation, Linear):
        return (elu_plus_one(q) @ elu_plus_one(k).mT).log(), float(k.shape[2])
    if isinstance(implementation, Lsh) and implementation.shared:
        k = F.normalize(q, dim=-1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    bias = torch.zeros(1) if case.bias is None else case.bias.double().masked_fill(case.bias.isneginf(), 0)
    if isinstance(implementation, Lsh) and q.numel() and k.numel():  # a pair counts in each round in which it meets
        wide = torch.promote_types(case.q.dtype, torch.float32)  # in which it hashes
        met = implementation.meetings(case.q.detach().to(wide), case.k.detach().to(wide), case.mask)
        scores = scores + met.double().clamp(min=1).log()
    return scores + bias, float(scores.abs().max() + bias.abs().max())


@given(case=attention_cases())
@cases(3 * MODELS)
def test_an_implementation_computes_its_definition(case: AttentionCase) -> None:
    """Against all weights written out in float64; 0 where nothing is visible; all gradients finite."""
    implementation, q, k, v, *options = case
    inputs = [x.requires_grad_() for x in (q, k, v)]
    output = implementation(*inputs, *options)
    assert (output.shape, output.dtype) == ((*q.shape[:3], v.shape[3]), v.dtype)
    assert output.isfinite().all()
    gradients = torch.autograd.grad(output.float().square().sum(), inputs, allow_unused=True)
    assert all(gradient.isfinite().all() for gradient in gradients if gradient is not None)
    if not q.numel() or not k.numel():
        assert not output.any()
        return
    allowed, (scores, size) = visible(case), log_weights(case)
    assert not output[~allowed.any(dim=-1)].any()
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1).nan_to_num()
    if not case.dropout:
        tolerance = 8 * torch.finfo(q.dtype).eps * (1 + size) * float(v.detach().abs().max())
        assert gap(output, weights @ v.double()) <= tolerance


# ---- models ------------------------------------------------------------------------------------------------------


def all_rows(subject: Subject) -> Tensor:
    return torch.arange(len(subject.x))


@torch.no_grad()
def tolerance_of(case: ModelCase) -> float:
    """What rounding may cost this model: 32 times what it costs in float32, in units of the dtype's precision.

    Matrices 30 times as large make differences grow from layer to layer; a fault would be as large in float64. With 16
    bits and matrices 8 times as large, scores of hundreds have no digits behind the point, so a softmax may choose
    another key, at any cost; then shapes are compared, and that all numbers are finite.
    """
    if case.dtype.itemsize < 4 and case.scale > 1:
        return math.inf
    subject, outputs = case.subject, []
    training = subject.model.training
    for dtype in (torch.float64, torch.float32):  # all weights are numbers of float32
        subject.model.eval().to(dtype)
        outputs.append(subject.whole(subject.x, all_rows(subject)))
    subject.model.train(training).to(case.dtype)
    size = 1 + float(outputs[0].abs().max()) if outputs[0].numel() else 1.0
    return 32 * torch.finfo(case.dtype).eps * (size + gap(*outputs) / torch.finfo(torch.float32).eps)


def same_dropout(subject: Subject, x: Tensor) -> Tensor:
    torch.manual_seed(0)
    return subject.whole(x, all_rows(subject))


def check_gradients(subject: Subject) -> None:
    output = same_dropout(subject, subject.x)
    assert output.isfinite().all()
    output.float().square().sum().backward()
    for name, weight in subject.model.named_parameters():
        assert weight.grad is None or weight.grad.isfinite().all(), name
        weight.grad = None


def check_future(subject: Subject, cut: int, tolerance: float) -> None:
    """What comes after `cut` positions changes nothing before."""
    changed = subject.x.clone()
    changed[:, cut:] = (changed[:, cut:] + 1) % VOCAB
    before, after = same_dropout(subject, subject.x), same_dropout(subject, changed)
    assert gap(after[:, :cut], before[:, :cut]) <= tolerance


def check_padding(subject: Subject, expected: Tensor, row: int, tolerance: float) -> None:
    """A row alone, without its padding, has the same output."""
    length = subject.x.shape[1] if subject.lengths is None else int(subject.lengths[row])
    source = None if subject.sources is None else int(subject.sources[row])
    if length:
        alone = subject.whole(subject.x[row : row + 1, :length], torch.tensor([row]), source)
        assert gap(alone[0], expected[row, :length]) <= tolerance


def check_written_out(subject: Subject, expected: Tensor, tolerance: float) -> None:
    """Where all layers are exact: `softmax` under the mask to which each narrows its own."""
    layers: list[Any] = [layer for layer in subject.model.modules() if supports_of(layer)]
    if all(layer.implementation.supports.exact for layer in layers):
        for layer in layers:
            layer.implementation = partial(written_out, layer.implementation)
        found = subject.whole(subject.x, all_rows(subject))
        for layer in layers:
            (layer.implementation,) = layer.implementation.args
        assert gap(found, expected) <= tolerance


def written_out(used: Any, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, **options: Any) -> Tensor:
    return softmax(q, k, v, used.mask(q, k, mask) if hasattr(used, "mask") else mask, **options)


def check_pieces(case: ModelCase, expected: Tensor, tolerance: float) -> None:
    """Piece by piece, after the first of which rows are selected, some of them twice."""
    subject, rows, done = case.subject, all_rows(case.subject), 0
    state = subject.start(rows)
    for number, size in enumerate(case.pieces if state is not None else []):
        piece = slice(done, done + size)
        output, state = subject.step(subject.x[rows, piece], rows, state)
        assert gap(output, expected[rows, piece]) <= tolerance
        done = piece.stop
        if number == 0:
            state, rows = state.select(case.rows), rows[case.rows]


def in_float32(tolerance: float, values: Tensor) -> float:
    """At least what rounding to float32 costs, in which words are chosen."""
    return max(tolerance, 32 * torch.finfo(torch.float32).eps * (1 + float(values.abs().max())))


KEEP_THE_BEST = [sampling.temperature(0.7), sampling.top_k(3), sampling.top_p(0.9), sampling.greedy]


def check_generation(subject: LanguageSubject, tolerance: float) -> None:
    """Greedy decoding with a cache goes on with a token of the largest logit that one pass over the text gives."""
    read, new = subject.x.shape[1], 9 - subject.x.shape[1]  # 8 tokens are read, since the last one is not
    text = sampling.generate(subject.model, subject.x, max_new_tokens=new, filters=KEEP_THE_BEST)
    assert torch.equal(text[:, :read], subject.x)
    logits = subject.model(text[:, :-1])[:, read - 1 :]
    assert gap(_taken(logits, text[:, read:]), logits.amax(dim=-1)) <= in_float32(tolerance, logits)


def _taken(values: Tensor, tokens: Tensor) -> Tensor:
    return values.gather(-1, tokens[..., None])[..., 0]


def log_probabilities(subject: TransformerSubject, tokens: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Of each of the tokens, 0 at padding, and the largest of any word that may be generated there."""
    read = torch.cat([torch.full_like(tokens[:, :1], BOS), tokens[:, :-1]], dim=1)
    found = subject.whole(read, rows).float().log_softmax(dim=-1)
    found[..., NEVER_GENERATED] = -torch.inf
    taken, largest = (values.masked_fill(tokens == PAD, 0) for values in (_taken(found, tokens), found.amax(dim=-1)))
    return taken, largest


def check_search(subject: TransformerSubject, width: int, tolerance: float) -> None:
    """Greedy search takes words of the largest probability; the score of a beam is that of its text in one pass."""
    rows, inputs = all_rows(subject), (subject.model, subject.source, subject.sources)
    tokens = greedy_search(*inputs, max_length=6).tokens
    taken, largest = log_probabilities(subject, tokens, rows)
    assert gap(taken, largest) <= 2 * in_float32(tolerance, taken)
    beams = beam_search(*inputs, width=width, max_length=4)
    texts, scores = beams.tokens.flatten(0, 1), beams.scores.flatten()
    logs, _ = log_probabilities(subject, texts, rows.repeat_interleave(width))
    lengths = (texts != PAD).sum(dim=-1)
    found = lengths > 0
    assert (found == scores.isfinite()).all()
    penalties = torch.tensor([VASWANI_PENALTY(int(length)) for length in lengths])
    tolerance = 2 * in_float32(tolerance, logs) * texts.shape[1]
    assert gap((scores * penalties)[found], logs.sum(dim=-1)[found]) <= tolerance


def check_decoding(case: ModelCase, tolerance: float) -> None:
    subject = case.subject
    if isinstance(subject, LanguageSubject) and subject.cached:
        check_generation(subject, tolerance)
    if isinstance(subject, TransformerSubject) and subject.cached:
        check_search(subject, len(case.rows), tolerance)


def freeze(case: ModelCase) -> bool:
    """Puts a frozen copy in the place of a language model, if there is one for its parts and its dtype."""
    if not isinstance(case.subject, LanguageSubject) or case.dtype.itemsize < 4:
        return False
    try:
        case.subject.model = Frozen(case.subject.model, case.dtype)
    except ValueError:
        assert not isinstance(case.subject, FrozenSubject)
        return False
    return True


@pytest.mark.usefixtures("unchecked")  # signatures that are checked take half of the time
@given(case=model_cases())
@cases(MODELS)
def test_a_model_keeps_the_invariants(case: ModelCase) -> None:
    """Finite gradients, no look ahead, no effect of padding, the written-out attention, pieces like the whole, and
    decoding."""
    subject, tolerance = case.subject, tolerance_of(case)
    check_gradients(subject)
    with torch.no_grad():
        if subject.causal and subject.x.shape[1] > 1:
            check_future(subject, case.cut, tolerance)
        subject.model.eval()
        expected = subject.whole(subject.x, all_rows(subject))
        check_padding(subject, expected, int(case.rows[0]), tolerance)
        check_written_out(subject, expected, tolerance)
        check_pieces(case, expected, tolerance)
        check_decoding(case, tolerance)
        if freeze(case):
            check_pieces(case, expected, tolerance)
            check_decoding(case, tolerance)
