"""Wrong answers that once passed, each as somebody would write it, and what it is told now."""

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from tfbook.course.exercises import Exercise
from tfbook.lessons.bahdanau_attention import exercises as bahdanau_attention
from tfbook.lessons.bert_masking import exercises as bert_masking
from tfbook.lessons.decoding import exercises as decoding
from tfbook.lessons.efficient_attention import exercises as efficient_attention
from tfbook.lessons.positions import exercises as positions
from tfbook.lessons.scoring_functions import exercises as scoring_functions
from tfbook.lessons.self_attention import exercises as self_attention
from tfbook.lessons.tokenizers import exercises as tokenizers
from tfbook.lessons.vit_patches import exercises as vit_patches
from tfbook.text import CLS, IGNORE_INDEX, MASK, PAD, SEP

# ---- sizes that are read from the wrong place --------------------------------------------------------------------


def mask_of_the_longest(lengths: Tensor, size: int) -> Tensor:
    places = torch.arange(lengths.max().item()).view(1, 1, 1, -1)
    return places < lengths.view(-1, 1, 1, 1)


def as_many_texts_as_beams(scores: Tensor, logp: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    totals, flat = (logp + scores.unsqueeze(1)).view(-1).topk(scores.numel())
    return flat.div(logp.size(1), rounding_mode="floor"), flat.remainder(logp.size(1)), totals


def mask_of_whole_blocks(layout: Tensor, size: int, n: int) -> Tensor:
    whole = torch.kron(layout.long(), torch.ones(size, size, dtype=torch.long)).bool()
    return whole & torch.ones_like(whole).tril()


def loss_without_padding(logits: Tensor, words: Tensor, weights: Tensor) -> Tensor:
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), words, reduction="none")
    return losses[words != 0].mean()


# ---- special tokens ----------------------------------------------------------------------------------------------


def hide_all_but_three(ids: Tensor, vocab: int, draw: Tensor, kind: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    hidden, targets = ids.clone(), torch.full_like(ids, IGNORE_INDEX)
    for place in zip(*torch.where(draw < 0.15), strict=True):
        if ids[place] in (PAD, CLS, SEP):
            continue
        targets[place] = ids[place]
        if kind[place] < 0.8:
            hidden[place] = MASK
        elif kind[place] < 0.9:
            hidden[place] = 5 + int(other[place] * (vocab - 5))
    return hidden, targets


# ---- merging and ties --------------------------------------------------------------------------------------------


def merged_as_text(word: list[int], pair: tuple[int, int], token: int) -> list[int]:
    text = " ".join(str(each) for each in word).replace(" ".join(map(str, pair)), str(token))
    return [int(each) for each in text.split()]


def counts_of(words: Any) -> Counter[tokenizers.Pair]:
    return Counter({pair: 0 for word in words for pair in pairwise(word)}) + sum(
        (Counter({pair: n * times for pair, n in Counter(pairwise(word)).items()}) for word, times in words.items()),
        Counter[tokenizers.Pair](),
    )


def pairs_tied_by(key: Callable[[Any], Any], words: tokenizers.Words) -> list[tuple[tokenizers.Pair, int]]:
    counts = counts_of(words)
    return [(pair, counts[pair]) for pair in sorted(counts, key=lambda pair: (-counts[pair], key(pair)))]


def next_tied_by(key: Callable[[Any], Any], text: str, merges: list[tokenizers.Pair]) -> tokenizers.Pair:
    words = Counter(tuple(tokenizers.encoded.reference(list(word), merges)) for word in text.split())
    counts = counts_of(words)
    best = max(counts.values())
    return min((pair for pair in counts if counts[pair] == best), key=key)


def next_from_text(text: str, merges: list[tokenizers.Pair]) -> tokenizers.Pair:
    words = [" ".join(word) for word in text.split()]
    for a, b in merges:
        words = [word.replace(f"{a} {b}", a + b) for word in words]
    return tokenizers.counted_pairs.reference(Counter(tuple(word.split()) for word in words))[0][0]


# ---- masks and exponentials --------------------------------------------------------------------------------------


def finite(fill: float, scores: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, scores, torch.tensor(fill)).softmax(-1)


def naive(scores: Tensor, mask: Tensor) -> Tensor:
    e = torch.where(mask, torch.exp(scores), torch.zeros(()))
    return e / torch.sum(e, -1, keepdim=True)


def relative_to_all(scores: Tensor, mask: Tensor) -> Tensor:
    e = torch.exp(scores - torch.max(scores, dim=-1, keepdim=True)[0])
    e = torch.where(mask, e, 0.0)
    return e / e.sum(-1, keepdim=True)


def zero_where_blocked(weigh: Callable[..., Tensor], scores: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, weigh(scores, mask), 0.0)


def zero_where_all_is_blocked(weigh: Callable[..., Tensor], scores: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask.any(-1, keepdim=True), weigh(scores, mask), 0.0)


def with_a_small_divisor(scores: Tensor, mask: Tensor) -> Tensor:
    e = torch.exp(scores - scores.max(-1, keepdim=True).values) * mask
    return e / e.sum(-1, keepdim=True).clamp_min(1e-30)


def attend(weigh: Callable[..., Tensor], scores: Tensor, mask: Tensor, states: Tensor) -> Tensor:
    return torch.bmm(weigh(scores, mask.unsqueeze(1)), states)


def cross(weigh: Callable[..., Tensor], query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    scores = torch.einsum("bnd,bmd->bnm", query, keys) * query.size(-1) ** -0.5
    return torch.einsum("bnm,bmd->bnd", weigh(scores, mask.unsqueeze(1)), values)


def record(weigh: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    weights = weigh(torch.bmm(q, k.transpose(1, 2)) / k.size(2) ** 0.5, mask)
    return torch.bmm(weights, v), weights


def look_back(weigh: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    n = q.size(2)
    seen = torch.arange(n) <= torch.arange(n).unsqueeze(1)
    mixed = torch.matmul(weigh(torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(k.size(-1)), seen), v)
    return mixed.permute(0, 2, 1, 3).flatten(2)


def with_past(
    weigh: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor, turn: positions.Turn
) -> tuple[Tensor, Tensor, Tensor]:
    past, new = past_k.size(2), q.size(2)
    k, v = torch.cat((past_k, turn(k, past)), 2), torch.cat((past_v, v), 2)
    seen = torch.arange(past + new) <= torch.arange(past, past + new).unsqueeze(1)
    return torch.matmul(weigh(torch.matmul(turn(q, past), k.mT) / q.size(-1) ** 0.5, seen), v), k, v


def one_step(
    weigh: Callable[..., Tensor], query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    weights = weigh((v * torch.tanh(keys + query.unsqueeze(1))).sum(2), mask)
    return torch.einsum("bk,bkd->bd", weights, values), weights


def with_cache(
    weigh: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return with_past(weigh, q, k, v, keys, values, lambda x, start: x)


def go_on(weigh: Callable[..., Tensor], ids: Tensor, past: Tensor, E: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:
    start, new = past.size(1), ids.size(1)
    x = E[ids] + P[torch.arange(start, start + new)]
    everything = torch.cat((past, x), 1)
    seen = torch.arange(start + new) <= torch.arange(start, start + new).unsqueeze(1)
    return weigh(torch.bmm(x, everything.transpose(1, 2)), seen) @ everything @ E.mT, everything


def whole_layer(
    weigh: Callable[..., Tensor], layer: Any, x: Tensor, context: Tensor | None, mask: Tensor | None
) -> Tensor:
    read = x if context is None else context
    q, k, v = (
        torch.stack(linear(vectors).chunk(layer.heads, dim=2), dim=1)
        for linear, vectors in ((layer.W_Q, x), (layer.W_K, read), (layer.W_V, read))
    )
    scores = torch.matmul(q, k.transpose(2, 3)) * q.size(3) ** -0.5
    mixed = weigh(scores, torch.ones(1, dtype=torch.bool) if mask is None else mask) @ v
    return layer.W_O(torch.cat(mixed.unbind(1), dim=2))


def attend_to_all(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    e = torch.exp(torch.bmm(query, keys.transpose(1, 2)) / query.size(2) ** 0.5)
    return torch.bmm(e, values) / e.sum(2, keepdim=True)


def hidden_loss(logits: Tensor, targets: Tensor) -> Tensor:
    total, count = torch.zeros(()), 0
    for row, target in zip(logits.flatten(0, 1), targets.flatten().tolist(), strict=True):
        if target != IGNORE_INDEX:
            total, count = total + row.exp().sum().log() - row[target], count + 1
    return total / max(count, 1)


def smoothed(logits: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
    logp = logits - logits.exp().sum(2, keepdim=True).log()
    q = torch.full_like(logp, epsilon / logits.size(2)).scatter_add(
        2, targets.unsqueeze(2), torch.full((*targets.shape, 1), 1 - epsilon)
    )
    return -(q * logp).sum(2)[targets != pad].mean()


# ---- temperatures, thresholds, divisors --------------------------------------------------------------------------


def lookup_above(least: float, scores: Tensor, values: Tensor, temperature: float) -> Tensor:
    return torch.matmul(torch.softmax(scores.div(max(least, temperature)), 1), values)


def top_p_by_threshold(logits: Tensor, p: float) -> Tensor:
    rows = []
    for row in logits:
        ordered = row.sort(descending=True).values
        count = int((ordered.softmax(0).cumsum(0) < p).sum()) + 1
        rows.append(torch.where(row >= ordered[count - 1], row, -torch.inf))
    return torch.stack(rows)


def linear_with_a_divisor_of_1(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    total, mixture, outputs = torch.zeros_like(k[0]), torch.zeros(k.size(1), v.size(1)), []
    for query, key, value in zip(q, k, v, strict=True):
        total, mixture = total + key, mixture + torch.outer(key, value)
        outputs.append(query @ mixture / torch.clamp(query @ total, min=1.0))
    return torch.stack(outputs)


def cosine_with_a_length_of_1(query: Tensor, keys: Tensor, sharpness: float) -> Tensor:
    products = (query.unsqueeze(1) * keys).sum(2)
    lengths = query.pow(2).sum(1, keepdim=True).sqrt().clamp_min(1) * keys.pow(2).sum(2).sqrt().clamp_min(1)
    return sharpness * products / lengths


# ---- nothing there -----------------------------------------------------------------------------------------------


def merge_by_the_formula(one: Any, other: Any) -> Any:
    (m_1, l_1, o_1), (m_2, l_2, o_2) = one, other
    m = torch.maximum(m_1, m_2)
    a, b = torch.exp(m_1 - m), torch.exp(m_2 - m)
    return m, a * l_1 + b * l_2, a * o_1 + b * o_2


def classify_up_to_registers(
    patches: Tensor, token: Tensor, registers: Tensor, places: Tensor, head: Tensor, pool: str
) -> Tensor:
    x = torch.cat([token.expand(len(patches), 1, -1), patches], dim=1) + places
    x = torch.cat([x, registers.expand(len(patches), *registers.shape)], dim=1)
    x = x + torch.softmax(torch.bmm(x, x.mT), 2) @ x
    return (x[:, 0] if pool == "token" else x[:, 1 : -len(registers)].mean(1)) @ head


def best_span_above_0(start: Tensor, end: Tensor, longest: int) -> tuple[int, int]:
    best, span = 0.0, (0, 0)
    for i in range(len(start)):
        for j in range(i, min(len(end), i + longest)):
            if start[i] + end[j] > best:
                best, span = start[i] + end[j], (i, j)
    return span


# ---- what the text rules out -------------------------------------------------------------------------------------


def always_sees_itself(layout: Tensor, size: int, n: int) -> Tensor:
    mask = layout.repeat_interleave(size, 0).repeat_interleave(size, 1)[:n, :n].tril()
    return mask.clone().fill_diagonal_(True)


def blocks_see_themselves(layout: Tensor, size: int, n: int) -> Tensor:
    block = torch.arange(n) // size
    own = block[:, None] == block
    return (layout[block[:, None], block] | own) & torch.ones(n, n, dtype=torch.bool).tril()


def called_per_head(x: Tensor, heads: int, attend: Callable[[Tensor], Tensor]) -> Tensor:
    pieces = x.split(x.size(2) // heads, dim=2)
    return torch.cat([attend(piece.unsqueeze(1)).squeeze(1) for piece in pieces], dim=2)


def called_per_head_without_its_axis(x: Tensor, heads: int, attend: Callable[[Tensor], Tensor]) -> Tensor:
    width, mixed = x.size(2) // heads, torch.empty_like(x)
    for head in range(heads):
        mixed[..., head * width : (head + 1) * width] = attend(x[..., head * width : (head + 1) * width])
    return mixed


# ---- all of them -------------------------------------------------------------------------------------------------

FILLS = (-15.0, -20.0, -1e3)
MASKED: list[tuple[Exercise, Callable[..., Any]]] = [
    (bahdanau_attention.masked_softmax, zero_where_blocked),
    (bahdanau_attention.masked_softmax, zero_where_all_is_blocked),
    (bahdanau_attention.attend, attend),
    (self_attention.cross_attention, cross),
    (self_attention.attend_and_record, record),
    (self_attention.causal_heads, look_back),
    (positions.attend_with_past, with_past),
    (bahdanau_attention.attention_step, one_step),
    (decoding.cached_attention, with_cache),
    (self_attention.multi_head, whole_layer),
]
READ_ON = decoding.read_on, go_on  # a token's score with itself is never below 0, so −1000 is low enough
FALSE_ACCEPTS: list[tuple[Exercise, Callable[..., Any], str]] = [
    (self_attention.mask_from_lengths, mask_of_the_longest, "`size` says how wide"),
    (decoding.beam_step, as_many_texts_as_beams, "`width` says how many"),
    (efficient_attention.block_mask, mask_of_whole_blocks, "cut the mask to n × n"),
    (bert_masking.weighted_loss, loss_without_padding, "the weights say what counts"),
    (bert_masking.hide, hide_all_but_three, "`[UNK]`, `[MASK]` can be selected"),
    (tokenizers.merged, merged_as_text, "replacing text"),
    (tokenizers.next_merge, next_from_text, "replacing text"),
    (tokenizers.counted_pairs, partial(pairs_tied_by, lambda pair: pair[0]), "by the first token alone"),
    (tokenizers.counted_pairs, partial(pairs_tied_by, "".join), "by the joined string"),
    (tokenizers.next_merge, partial(next_tied_by, lambda pair: pair[0]), "by the first token alone"),
    (tokenizers.next_merge, partial(next_tied_by, "".join), "by the joined string"),
    *((each, partial(way, partial(finite, fill)), "is not low enough") for each, way in MASKED for fill in FILLS),
    *((decoding.read_on, partial(go_on, partial(finite, fill)), "leaves some weight") for fill in FILLS[:2]),
    *((each, partial(way, naive), "exp overflows") for each, way in [*MASKED[1:], READ_ON]),
    *((each, partial(way, relative_to_all), "subtract the largest allowed") for each, way in [*MASKED[1:], READ_ON]),
    (bahdanau_attention.masked_softmax, with_a_small_divisor, "subtract the largest allowed score"),
    (scoring_functions.attend, attend_to_all, "exp overflows"),
    (bert_masking.hidden_loss, hidden_loss, "exp(200) overflows"),
    (decoding.smoothed_loss, smoothed, "exp(200) overflows"),
    *((scoring_functions.soft_lookup, partial(lookup_above, least), "is not 0") for least in (0.01, 1e-4, 1e-8)),
    (decoding.top_p, top_p_by_threshold, "cut by place, not by value"),
    (efficient_attention.causal_linear, linear_with_a_divisor_of_1, "below 1 is raised to 1"),
    (scoring_functions.cosine_score, cosine_with_a_length_of_1, "below 1 are raised to 1"),
    (efficient_attention.merge, merge_by_the_formula, "two machines without keys give NaN"),
    (vit_patches.classify, classify_up_to_registers, "without registers"),
    (bert_masking.best_span, best_span_above_0, "begins with a best sum of 0"),
    (efficient_attention.block_mask, always_sees_itself, "every position sees itself"),
    (efficient_attention.block_mask, blocks_see_themselves, "every block reads itself"),
    (self_attention.attend_per_head, called_per_head, "called once per head"),
    (self_attention.attend_per_head, called_per_head_without_its_axis, "called once per head"),
]


@pytest.mark.parametrize(
    ("exercise", "answer", "gist"), FALSE_ACCEPTS, ids=[f"{each.name}: {gist}" for each, _, gist in FALSE_ACCEPTS]
)
def test_what_once_passed_is_told_what_is_wrong(exercise: Exercise, answer: Callable[..., Any], gist: str) -> None:
    """By name: a refusal that only shows the case would begin with its number."""
    verdict = exercise.judge(answer)
    assert verdict.status == "not quite"
    assert gist in verdict.message
