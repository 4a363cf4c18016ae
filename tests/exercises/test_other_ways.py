"""Other right answers are right: the package's own code, PyTorch's, loops. A check accepts more than one way."""

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import pytest
import torch
from einops import rearrange
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from tfbook.attention import POSITIONS, ALiBi, Causal, Lengths, MultiHeadAttention, Relative, Rotary, sinusoid
from tfbook.attention.efficient.block_sparse import BlockSparse
from tfbook.attention.efficient.linear import causal_sums, step
from tfbook.attention.efficient.performer import log_features
from tfbook.course.exercises import CheckResult, Exercise, randn
from tfbook.lessons.adapting import exercises as adapting
from tfbook.lessons.bahdanau_attention import exercises as bahdanau_attention
from tfbook.lessons.bert_masking import exercises as bert_masking, first_exercises as bert_masking_first
from tfbook.lessons.decoding import exercises as decoding
from tfbook.lessons.efficient_attention import exercises as efficient_attention
from tfbook.lessons.gpt_pretraining import exercises as gpt_pretraining
from tfbook.lessons.positions import exercises as positions
from tfbook.lessons.preferences import exercises as preferences
from tfbook.lessons.scaling_laws import exercises as scaling_laws
from tfbook.lessons.scoring_functions import exercises as scoring_functions
from tfbook.lessons.self_attention import exercises as self_attention
from tfbook.lessons.start_here import exercises as start_here
from tfbook.lessons.tokenizers import exercises as tokenizers
from tfbook.lessons.transformer import exercises as transformer
from tfbook.lessons.vit_patches import exercises as vit_patches
from tfbook.models import gpt, vit
from tfbook.models.adapters import add_lora, trained_count
from tfbook.models.bert import Bert
from tfbook.models.blocks import Config, PostNorm, Stack
from tfbook.models.experts import load_balance, top_experts
from tfbook.models.norms import layer_norm
from tfbook.text import BERT_SPECIALS, IGNORE_INDEX, MASK, PAD, join_segments
from tfbook.text.bpe import merge
from tfbook.training import inverse_sqrt, masked_token_loss

# ---- lesson 00 ---------------------------------------------------------------------------------------------------


def softmax_by_logarithm(scores: Tensor) -> Tensor:
    return (scores - scores.logsumexp(dim=-1, keepdim=True)).exp()


# ---- lesson 01 ---------------------------------------------------------------------------------------------------


def masked_softmax_row_by_row(scores: Tensor, mask: Tensor) -> Tensor:
    weights = torch.zeros_like(scores)
    for row, allowed in enumerate(mask):
        weights[row, allowed] = scores[row, allowed].softmax(dim=0)
    return weights


def masked_softmax_without_nan(scores: Tensor, mask: Tensor) -> Tensor:
    return (scores + mask.log()).softmax(dim=-1).nan_to_num()


def masked_softmax_by_exponentials(scores: Tensor, mask: Tensor) -> Tensor:
    scores = scores.masked_fill(~mask, -1e9)
    weights = (scores - scores.amax(dim=-1, keepdim=True)).exp() * mask
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1)


def context_by_matrices(weights: Tensor, states: Tensor) -> Tensor:
    return torch.bmm(weights, states)


def error_rate_by_counting(found: set, sure: set, possible: set) -> float:
    right = sum((link in sure) + (link in possible) for link in found)
    return (len(found) + len(sure) - right) / (len(found) + len(sure))


def gradient_score_by_score(f: Callable[[Tensor], Tensor], scores: Tensor, epsilon: float) -> Tensor:
    def moved(i: int, by: float) -> Tensor:
        copy = scores.clone()
        copy[i] += by
        return f(copy)

    slopes = [(moved(i, epsilon) - moved(i, -epsilon)) / (2 * epsilon) for i in range(len(scores))]
    return torch.tensor(slopes)


def attend_with_low_scores(scores: Tensor, mask: Tensor, states: Tensor) -> Tensor:
    return (scores + -1e9 * ~mask[:, None]).softmax(dim=-1) @ states


def step_sentence_by_sentence(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    """Of the words alone; what is padding has no score."""
    contexts, weights = [], torch.zeros(mask.shape)
    for row, (q, k, seen) in enumerate(zip(query, keys, mask, strict=True)):
        shares = torch.softmax(torch.tanh(q + k[seen]) @ v, dim=0)
        weights[row, seen] = shares
        contexts.append(shares @ values[row, seen])
    return torch.stack(contexts), weights


# ---- lesson 02 ---------------------------------------------------------------------------------------------------


def cosine_of_normalized(query: Tensor, keys: Tensor, sharpness: float) -> Tensor:
    return sharpness * (F.normalize(keys, dim=-1) @ F.normalize(query, dim=-1)[:, :, None])[:, :, 0]


def cosine_by_pytorch(query: Tensor, keys: Tensor, sharpness: float) -> Tensor:
    return sharpness * F.cosine_similarity(query[:, None], keys, dim=-1)


def lookup_with_one_hot(scores: Tensor, values: Tensor, temperature: float) -> Tensor:
    if temperature:
        scores = (scores - scores.amax(dim=-1, keepdim=True)) / temperature
        weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
    else:
        weights = F.one_hot(scores.argmax(dim=-1), len(values)).float()
    return weights @ values


def attend_by_pytorch(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, keys, values)


def general_lookup_by_pytorch(query: Tensor, keys: Tensor, values: Tensor, W: Tensor) -> Tensor:
    scale = 1 / math.sqrt(query.shape[-1])
    return F.scaled_dot_product_attention((query @ W)[:, None], keys, values, scale=scale)[:, 0]


def general_lookup_memory_by_memory(query: Tensor, keys: Tensor, values: Tensor, W: Tensor) -> Tensor:
    rows = zip(query, keys, values, strict=True)
    return torch.stack([torch.softmax(k @ (q @ W) / len(q) ** 0.5, dim=0) @ v for q, k, v in rows])


# ---- lesson 03 ---------------------------------------------------------------------------------------------------


def mask_word_by_word(lengths: Tensor, size: int) -> Tensor:
    rows = [[place < length for place in range(size)] for length in lengths.tolist()]
    return torch.tensor(rows).view(len(lengths), 1, 1, size)


def heads_by_names(x: Tensor, heads: int, attend: Callable[[Tensor], Tensor]) -> Tensor:
    return rearrange(attend(rearrange(x, "b t (h d) -> b h t d", h=heads)), "b h t d -> b t (h d)")


def heads_from_pieces(x: Tensor, heads: int, attend: Callable[[Tensor], Tensor]) -> Tensor:
    mixed = attend(torch.stack(x.chunk(heads, dim=-1), dim=1))
    return torch.cat(mixed.unbind(dim=1), dim=-1)


def causal_by_diagonal(scores: Tensor) -> Tensor:
    queries, keys = scores.shape[1:]
    return torch.ones(queries, keys).tril(diagonal=keys - queries).bool()


def cross_by_pytorch(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask[:, None])


def pruned_head_by_head(mixed: Tensor, W_O: Tensor, removed: list[int]) -> Tensor:
    columns = W_O.chunk(mixed.shape[1], dim=1)
    return sum(mixed[:, i] @ each.T for i, each in enumerate(columns) if i not in removed)


def reach_by_paths(mask: Tensor, layers: int) -> Tensor:
    return torch.linalg.matrix_power(mask.double(), layers) > 0


def record_with_low_scores(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    weights = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(mask.logical_not(), -1e9).softmax(dim=-1)
    return weights @ v, weights


def causal_by_pytorch(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return rearrange(F.scaled_dot_product_attention(q, k, v, is_causal=True), "b h t d -> b t (h d)")


class AttentionByPytorch(nn.Module):
    """The whole layer as a class, whose weights the check sets."""

    def __init__(self, d_model: int, heads: int):
        super().__init__()
        self.heads = heads
        self.W_O, self.W_V, self.W_K, self.W_Q = (nn.Linear(d_model, d_model) for _ in range(4))
        self.register_buffer("heads_left", torch.ones(heads))

    def forward(self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        vectors = (self.W_Q(x), *(W(x if context is None else context) for W in (self.W_K, self.W_V)))
        q, k, v = (rearrange(each, "b t (h d) -> b h t d", h=self.heads) for each in vectors)
        return self.W_O(rearrange(F.scaled_dot_product_attention(q, k, v, mask), "b h t d -> b t (h d)"))


# ---- lesson 04 ---------------------------------------------------------------------------------------------------


def rotary_with_complex_numbers(x: Tensor, positions: Tensor) -> Tensor:
    angles = torch.outer(positions, 10_000 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1]))
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def rotary_with_matrices(x: Tensor, positions: Tensor) -> Tensor:
    result, d_head = torch.empty_like(x), x.shape[-1]
    for time, position in enumerate(positions.tolist()):
        for i in range(0, d_head, 2):
            angle = position / 10_000 ** (i / d_head)
            turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
            result[:, :, time, i : i + 2] = x[:, :, time, i : i + 2] @ turn.T
    return result


def pair_up_with_slices(W: Tensor, heads: int) -> Tensor:
    return torch.cat([rows[start::2] for rows in W.chunk(heads) for start in (0, 1)])


def alibi_of_the_package(scores: Tensor) -> Tensor:
    return ALiBi(scores.shape[1]).bias(scores, scores.shape[3])[0]


def relative_of_the_package(q: Tensor, table: Tensor) -> Tensor:
    relative = Relative(q.shape[-1], reach=len(table) // 2)
    del relative.embedding.weight  # a parameter, which would be a leaf of its own
    relative.embedding.weight = table
    return relative.bias(q, q.shape[2])


def probe_by_descent(states: Tensor, positions: Tensor, new_states: Tensor, new_positions: Tensor) -> Tensor:
    linear = nn.Linear(states.shape[1], 1)
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
    for _ in range(500):
        optimizer.zero_grad()
        F.mse_loss(linear(states)[:, 0], positions).backward()
        optimizer.step()
    wrong = new_positions - linear(new_states)[:, 0]
    return 1 - wrong.square().mean() / new_positions.var(correction=0)


def probe_by_inverse(states: Tensor, positions: Tensor, new_states: Tensor, new_positions: Tensor) -> float:
    weights = torch.linalg.pinv(states - states.mean(dim=0)) @ (positions - positions.mean())
    predictions = positions.mean() + (new_states - states.mean(dim=0)) @ weights
    return 1 - float((new_positions - predictions).square().mean() / new_positions.var(correction=0))


def attend_to_what_is_turned(
    q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor, turn: positions.Turn
) -> tuple[Tensor, Tensor, Tensor]:
    k = torch.cat([past_k, turn(k, start=past_k.shape[2])], dim=2)
    v = torch.cat([past_v, v], dim=2)
    mask = Causal().dense(q.shape[2], k.shape[2])
    return F.scaled_dot_product_attention(turn(q, start=past_k.shape[2]), k, v, attn_mask=mask), k, v


# ---- lesson 05 ---------------------------------------------------------------------------------------------------


def rates_of_the_package(steps: Tensor, d_model: int, warmup: int) -> Tensor:
    factor = inverse_sqrt(warmup)
    return torch.tensor([factor(step, 1000) for step in steps.tolist()]) / math.sqrt(d_model * warmup)


def masks_of_the_package(source_lengths: Tensor, target_lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    source, target = int(source_lengths.max()), int(target_lengths.max())
    seen = Lengths(source_lengths).dense(1, source)[:, 0]
    decoder = (Lengths(target_lengths) & Causal()).dense(target, target)[:, 0]
    return seen.expand(-1, source, -1), decoder, seen.expand(-1, target, -1)


def smoothed_by_logarithm(logits: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
    wanted = F.one_hot(targets, logits.shape[-1]) * (1 - epsilon) + epsilon / logits.shape[-1]
    losses = (wanted * (logits.logsumexp(dim=-1, keepdim=True) - logits)).sum(dim=-1)
    counted = (targets != pad).float()
    return (losses * counted).sum() / counted.sum().clamp(min=1)


def smoothed_by_pytorch(logits: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=epsilon, ignore_index=pad)


def cached_by_pytorch(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    past, new = keys.shape[2], q.shape[2]
    keys, values = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)
    mask = torch.arange(past + new) <= past + torch.arange(new)[:, None]
    return F.scaled_dot_product_attention(q, keys, values, mask), keys, values


def read_on_token_by_token(ids: Tensor, past: Tensor, E: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:
    logits = []
    for token in ids.T:
        x = E[token] + P[past.shape[1]]
        past = torch.cat([past, x[:, None]], dim=1)
        weights = torch.einsum("bd,btd->bt", x, past).softmax(dim=1)
        logits.append(torch.einsum("bt,btd,vd->bv", weights, past, E))
    return torch.stack(logits, dim=1), past


def beams_sorted_in_python(scores: Tensor, logp: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    texts = [
        (score + word_score, parent, word)
        for parent, (score, row) in enumerate(zip(scores.tolist(), logp.tolist(), strict=True))
        for word, word_score in enumerate(row)
    ]
    totals, parents, words = zip(*sorted(texts, reverse=True)[:width], strict=True)
    return torch.tensor(parents), torch.tensor(words), torch.tensor(totals)


def beams_from_each_beams_best(scores: Tensor, logp: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    best, words = (scores[:, None] + logp).topk(width)
    totals, places = best.flatten().topk(width)
    return places // width, words.flatten()[places], totals


def loss_of_the_whole_target(model: transformer.Model, source: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(model(source, target)[:, :-1].mT, target[:, 1:], ignore_index=PAD)


def loss_word_by_word(model: transformer.Model, source: Tensor, target: Tensor) -> Tensor:
    logits = [model(source, target[:, :end])[:, -1] for end in range(1, target.shape[1])]
    return F.cross_entropy(torch.stack(logits, dim=2), target[:, 1:], ignore_index=PAD)


# ---- lesson 08 ---------------------------------------------------------------------------------------------------


def hide_place_by_place(ids: Tensor, vocab: int, draw: Tensor, kind: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    hidden, targets = ids.clone(), torch.full_like(ids, IGNORE_INDEX)
    for row, place in (draw < 0.15).nonzero().tolist():
        word = int(ids[row, place])
        if word < len(BERT_SPECIALS):
            continue
        targets[row, place] = word
        if kind[row, place] < 0.8:
            hidden[row, place] = MASK
        elif kind[row, place] < 0.9:
            hidden[row, place] = len(BERT_SPECIALS) + int(other[row, place] * (vocab - len(BERT_SPECIALS)))
    return hidden, targets


def hide_with_lists(ids: Tensor, vocab: int, draw: Tensor, kind: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    specials = torch.arange(len(BERT_SPECIALS))
    drawn = draw.lt(0.15) & ~torch.isin(ids, specials)
    hidden, targets = ids.clone(), torch.full_like(ids, IGNORE_INDEX)
    targets[drawn] = ids[drawn]
    words = torch.arange(len(BERT_SPECIALS), vocab)
    swapped = drawn & kind.ge(0.8) & kind.lt(0.9)
    hidden[swapped] = words[(other[swapped] * len(words)).floor().int()]
    hidden[drawn & kind.lt(0.8)] = MASK
    return hidden, targets


def hidden_loss_of_the_package(logits: Tensor, targets: Tensor) -> Tensor:
    return masked_token_loss(logits[targets != IGNORE_INDEX], targets[targets != IGNORE_INDEX]).mean


def hidden_loss_by_logarithm(logits: Tensor, targets: Tensor) -> Tensor:
    counted = targets != IGNORE_INDEX
    right = logits.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return ((logits.logsumexp(dim=-1) - right) * counted).sum() / counted.sum().clamp(min=1)


def hidden_loss_without_nan(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.mT, targets, ignore_index=IGNORE_INDEX).nan_to_num()


def pair_of_the_package(
    documents: list[list[list[int]]], document: int, sentence: int, follows: bool, pick: float
) -> bert_masking_first.Pair:
    if follows:
        return *join_segments(*documents[document][sentence : sentence + 2]), 0
    others = [text for text in documents if text is not documents[document]]
    sentences = [each for text in others for each in text]
    return *join_segments(documents[document][sentence], sentences[int(pick * len(sentences))]), 1


def step_by_hand(bert: nn.Module, head: nn.Module, ids: Tensor, lengths: Tensor, labels: Tensor, rate: float) -> Tensor:
    weights = [*bert.parameters(), *head.parameters()]
    logp = head(bert(ids, lengths)[:, 0]).log_softmax(dim=-1)
    gradients = torch.autograd.grad(-logp[range(len(labels)), labels].mean(), weights)
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients, strict=True):
            weight -= rate * gradient
    return head(bert(ids, lengths)[:, 0])


def span_by_search(start: Tensor, end: Tensor, longest: int) -> tuple[int, int]:
    best, found = -math.inf, (0, 0)
    for j in range(len(end)):
        for i in range(max(0, j - longest + 1), j + 1):
            total = (start[i] + end[j]).item()
            if total > best:
                best, found = total, (i, j)
    return found


def span_from_a_table(start: Tensor, end: Tensor, longest: int) -> tuple[int, int]:
    allowed = torch.ones(len(start), len(end)).triu().tril(longest - 1).bool()
    sums = (start[:, None] + end).masked_fill(~allowed, -torch.inf)
    return divmod(int(sums.argmax()), len(end))


def count_a_model(vocab: int, longest: int, segments: int, d_model: int, heads: int, d_ff: int, layers: int) -> int:
    sizes = Config(
        d_model=d_model,
        heads=heads,
        d_ff=d_ff,
        layers=layers,
        max_length=longest,
        position=POSITIONS["learned"],
        residual=PostNorm,
    )
    with torch.device("meta"):
        return sum(weight.numel() for weight in Bert(vocab, sizes, segments=segments).parameters())


def loss_by_index(logits: Tensor, words: Tensor, weights: Tensor) -> Tensor:
    return F.cross_entropy(logits[weights > 0], words[weights > 0])


# ---- lesson 07 ---------------------------------------------------------------------------------------------------


def pairs_counted_by_place(words: tokenizers.Words) -> list[tuple[tokenizers.Pair, int]]:
    counts: dict[tokenizers.Pair, int] = {}
    for word, times in words.items():
        for i in range(len(word) - 1):
            counts[word[i], word[i + 1]] = counts.get((word[i], word[i + 1]), 0) + times
    return [(pair, -count) for count, pair in sorted((-count, pair) for pair, count in counts.items())]


def pairs_sorted_twice(words: tokenizers.Words) -> list[tuple[tokenizers.Pair, int]]:
    counts = Counter[tokenizers.Pair]()
    for word, times in words.items():
        counts.update({pair: count * times for pair, count in Counter(pairwise(word)).items()})
    return sorted(sorted(counts.items()), key=lambda item: item[1], reverse=True)


def merged_from_a_stack(word: list[int], pair: tuple[int, int], token: int) -> list[int]:
    left, tokens = word[::-1], []
    while left:
        tokens.append(left.pop())
        if left and (tokens[-1], left[-1]) == pair:
            tokens[-1] = token
            left.pop()
    return tokens


def merged_by_the_package(word: list[int], pair: tuple[int, int], token: int) -> list[int]:
    return list(merge(word, pair, token))


def next_merge_from_exercises(text: str, merges: list[tokenizers.Pair]) -> tokenizers.Pair:
    words = [tuple(tokenizers.encoded.reference(list(word), merges)) for word in text.split()]
    return tokenizers.counted_pairs.reference(Counter(words))[0][0]


def encoded_by_rank(word: list[str], merges: list[tokenizers.Pair]) -> list[str]:
    tokens, ranks = list(word), {pair: rank for rank, pair in enumerate(merges)}
    while found := [(ranks[pair], i) for i, pair in enumerate(pairwise(tokens)) if pair in ranks]:
        _, i = min(found)
        tokens[i : i + 2] = [tokens[i] + tokens[i + 1]]
    return tokens


def streamed_by_hand(tokens: list[bytes]) -> list[str]:
    def unfinished(kept: bytes) -> int:
        for count, byte in enumerate(reversed(kept[-3:]), start=1):
            if byte < 0x80 or byte > 0xF4:
                return 0
            if byte >= 0xC2:  # the first byte of a character says how many it has
                return count if count < 2 + (byte >= 0xE0) + (byte >= 0xF0) else 0
        return 0

    shown, kept = [], b""
    for place, token in enumerate(tokens, start=1):
        kept += token
        end = len(kept) - (unfinished(kept) if place < len(tokens) else 0)
        shown.append(kept[:end].decode(errors="replace"))
        kept = kept[end:]
    return shown


def words_merged_by_pattern(words: list[str], first: str, second: str) -> list[str]:
    pair = re.compile(rf"(?<!\S){re.escape(first)} {re.escape(second)}(?!\S)")
    return [pair.sub(lambda found: first + second, word) for word in words]


# ---- lesson 09 ---------------------------------------------------------------------------------------------------


def attend_by_hand(layer: nn.Module, x: Tensor) -> Tensor:
    """Scores, a mask of −∞ and a softmax, written out; pairs of coordinates turn as complex numbers."""

    def turn(heads: Tensor) -> Tensor:
        half = heads.shape[-1] // 2
        angles = torch.outer(torch.arange(heads.shape[2]), 10_000 ** (-torch.arange(half) / half))
        turned = torch.complex(*heads.chunk(2, dim=-1)) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([turned.real, turned.imag], dim=-1)

    q, k, v = (layer.split(project(x)) for project in (layer.W_Q, layer.W_K, layer.W_V))
    scores = turn(q) @ turn(k).mT / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    weights = scores.masked_fill(later, -math.inf).softmax(dim=-1)
    return layer.W_O(rearrange(weights @ v, "b h n d -> b n (h d)"))


def attend_head_by_head(layer: nn.Module, x: Tensor) -> Tensor:
    q, k = (layer.split(project(x)) for project in (layer.W_Q, layer.W_K))
    q, k = (Rotary(q.shape[-1]).rotate(each) for each in (q, k))
    v, heads = layer.split(layer.W_V(x)), []
    for number in range(v.shape[1]):
        scores = q[:, number] @ k[:, number].mT / v.shape[-1] ** 0.5
        scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -torch.inf)
        weights = (scores - scores.amax(dim=-1, keepdim=True)).exp()
        heads.append(weights / weights.sum(dim=-1, keepdim=True) @ v[:, number])
    return layer.W_O(torch.cat(heads, dim=-1))


def attend_as_the_package(layer: nn.Module, x: Tensor) -> Tensor:
    package = MultiHeadAttention(x.shape[-1], layer.heads)
    options = {"mask": Causal(), "position": Rotary(x.shape[-1] // layer.heads)}
    return functional_call(package, dict(layer.named_parameters()), (x,), options)


def top_p_from_the_rarest(logits: Tensor, p: float) -> Tensor:
    """As in the package, but for equal tokens: of those the sort keeps the last for the end, so it sees the reverse."""
    ordered, places = logits.flip(1).sort(dim=-1, stable=True)
    drop = ordered.softmax(dim=-1).cumsum(dim=-1) <= 1 - p
    drop[:, -1] = False
    return torch.empty_like(logits).scatter(-1, places, ordered.masked_fill(drop, -torch.inf)).flip(1)


def top_p_by_ranks(logits: Tensor, p: float) -> Tensor:
    order = logits.argsort(dim=-1, descending=True, stable=True)
    total = logits.softmax(dim=-1).gather(-1, order).cumsum(dim=-1)
    count = (total < p).sum(dim=-1, keepdim=True) + 1
    return logits.masked_fill(order.argsort(dim=-1) >= count, -torch.inf)


def top_p_token_by_token(logits: Tensor, p: float) -> Tensor:
    kept = torch.full_like(logits, -torch.inf)
    for row, probabilities in enumerate(logits.softmax(dim=-1).tolist()):
        total = 0.0
        for token in sorted(range(len(probabilities)), key=lambda token: -probabilities[token]):
            if total < p:
                kept[row, token] = logits[row, token]
            total += probabilities[token]
    return kept


def gpt2(d_model: int, d_ff: int, layers: int, **others: int) -> Config:
    return replace(gpt.GPT2, d_model=d_model, d_ff=d_ff, layers=layers, **others)


def count_by_the_package(vocab: int, context: int, d_model: int, heads: int, d_ff: int, layers: int) -> int:
    return gpt.parameter_count(vocab, gpt2(d_model, d_ff, layers, heads=heads, max_length=context))


def count_a_gpt(vocab: int, context: int, d_model: int, heads: int, d_ff: int, layers: int) -> int:
    with torch.device("meta"):
        model = gpt.Gpt(vocab, gpt2(d_model, d_ff, layers, heads=heads, max_length=context))
    return sum(parameter.numel() for parameter in model.parameters())


def utilisation_by_the_package(
    vocab: int, d_model: int, d_ff: int, layers: int, context: int, tokens_per_second: float, peak: float
) -> float:
    return gpt.utilization(tokens_per_second, vocab, gpt2(d_model, d_ff, layers, heads=1), context, peak=peak)


def first_loss_from_a_distribution(vocab: int, d_model: int, std: float) -> Tensor:
    spread = max(math.sqrt(d_model) * std, 1e-12)
    return (vocab * torch.distributions.LogNormal(torch.tensor(0.0).double(), spread).mean).log()


def bits_by_power(loss: float, tokens: int, text: str) -> float:
    return tokens * math.log2(math.exp(loss)) / sum(len(character.encode()) for character in text)


def gradient_of_one_batch(weight: Tensor, batches: scaling_laws.Batches) -> Tensor:
    weight = weight.clone().requires_grad_()
    x, targets = (torch.cat(part) for part in zip(*batches, strict=True))
    return torch.autograd.grad(F.cross_entropy(x @ weight, targets), weight)[0]


def round_by_values(X: Tensor) -> Tensor:
    U, s, Vh = torch.linalg.svd(X, full_matrices=False)
    return (U * (3.4445 * s - 4.775 * s**3 + 2.0315 * s**5)[..., None, :]) @ Vh


def terms_by_normal_equations(N: Tensor, D: Tensor, loss: Tensor, alpha: float, beta: float) -> Tensor:
    columns = torch.stack([N**0, (1 / N) ** alpha, (1 / D) ** beta])
    return torch.linalg.inv(columns @ columns.T) @ columns @ loss


def size_by_search(compute: float, A: float, alpha: float, B: float, beta: float) -> tuple[float, float]:
    """Ternary search for log N: the loss falls and then rises."""
    low, high = 0.0, math.log(compute)
    for _ in range(200):
        thirds = [low + (high - low) / 3, high - (high - low) / 3]
        first, second = (A * math.exp(-alpha * n) + B * (6 * math.exp(n) / compute) ** beta for n in thirds)
        low, high = (low, thirds[1]) if first < second else (thirds[0], high)
    return math.exp(low), compute / 6 / math.exp(low)


def prefix_scores_by_diagonal(weights: Tensor, period: int) -> Tensor:
    return weights.diagonal(1 - period, dim1=1, dim2=2)[:, -period:].mean(dim=1)


# ---- lesson 11 ---------------------------------------------------------------------------------------------------


def lora_with_a_merged_weight(x: Tensor, W: Tensor, b: Tensor, A: Tensor, B: Tensor, alpha: float) -> Tensor:
    return F.linear(x, W + alpha / A.shape[0] * B @ A, b)


def adapters_of_the_package(d_model: int, d_ff: int, layers: int, rank: int, names: list[str]) -> int:
    """Counted in a block, without memory for its numbers."""
    with torch.device("meta"):
        stack = Stack(replace(gpt.GPT2, d_model=d_model, d_ff=d_ff, layers=1, heads=1))
    return layers * trained_count(add_lora(stack, rank=rank, alpha=1, where=names))


def switch_at_once(W: Tensor, old: adapting.Adapter, new: adapting.Adapter, alpha: float) -> Tensor:
    changes = [(alpha / A.shape[0]) * torch.einsum("or,ri->oi", B, A) for A, B in (new, old)]
    return W + changes[0] - changes[1]


def pairs_piece_by_piece(a: list[int], b: list[int], start: int, delim: int, extract: int) -> list[list[int]]:
    rows = []
    for first, second in zip((a, b), (b, a), strict=True):
        row = [start]
        row.extend(first)
        row.append(delim)
        rows.append(row + list(second) + [extract])
    return rows


def spans_by_groups(ids: list[int], cut: list[bool], sentinel: int) -> tuple[list[int], list[int]]:
    source, target = [], []
    pairs = list(zip(ids, cut, strict=True))
    for gone, run in groupby(pairs, key=itemgetter(1)):
        tokens = [token for token, _ in run]
        if gone:
            source, target, sentinel = [*source, sentinel], [*target, sentinel, *tokens], sentinel + 1
        else:
            source += tokens
    return source, [*target, sentinel]


def balance_of_the_package(p: Tensor, k: int) -> Tensor:
    return load_balance(top_experts(p.log(), k))


# ---- lesson 13 ---------------------------------------------------------------------------------------------------


def cut_by_unfolding(images: Tensor, p: int) -> Tensor:
    """`unfold` puts channels outermost: they go behind the pixels."""
    return F.unfold(images, kernel_size=p, stride=p).mT.unflatten(-1, (-1, p * p)).mT.flatten(2)


def cut_square_by_square(images: Tensor, p: int) -> Tensor:
    height, width = images.shape[2:]
    corners = [(y, x) for y in range(0, height, p) for x in range(0, width, p)]
    squares = [images[:, :, y : y + p, x : x + p].permute(0, 2, 3, 1) for y, x in corners]
    return torch.stack([square.flatten(1) for square in squares], dim=1)


def cut_by_names(images: Tensor, p: int) -> Tensor:
    return rearrange(images, "b c (row p) (column q) -> b (row column) (p q c)", p=p, q=p)


def weights_by_the_package(height: int, width: int, p: int, tokens: int, heads: int, layers: int) -> int:
    shape = {"height": height, "width": width, "patch": p, "tokens": tokens}
    return vit.cost(vit.VitConfig(d_model=heads, heads=heads, d_ff=1, layers=layers, **shape)).weights


def mean_vit_by_reduce(
    images: Tensor, embed: Callable, positions: Tensor, blocks: list[Callable], norm: Callable, head: Callable
) -> Tensor:
    """All blocks as one function; the head reads each patch, and its answers are averaged, since it is linear."""
    x = reduce(lambda x, block: block(x), blocks, embed(images) + positions[None])
    return torch.stack([head(row).mean(dim=0) for row in norm(x)])


def hurts_by_two_questions(reader: str, order: str) -> bool:
    uses_places = reader in ("ViT", "linear classifier")
    can_learn_them = order == "one, in training and test"
    return uses_places and not can_learn_them


def positions_of_the_package(table: Tensor, old: tuple[int, int], new: tuple[int, int], tokens: int) -> Tensor:
    return vit.interpolated(table.roll(tokens, dims=0)[None], old, new)[0].roll(-tokens, dims=0)


def roll_by_whole_matrices(layers: list[Tensor], keep: float) -> Tensor:
    """From the bottom up, as the package does it; the token's row is taken at the end."""
    eye = torch.eye(layers[0].shape[-1])
    steps = [torch.lerp(weights.mean(dim=1), eye.expand(len(weights), -1, -1), keep) for weights in layers]
    row = reduce(lambda below, above: above @ below, steps)[:, 0, 1:]
    return F.normalize(row, p=1, dim=1)


def roll_by_the_package(layers: list[Tensor], keep: float) -> Tensor:
    """Its (A + I) / 2 is keep · I + (1 − keep) · A where A = 2 (keep · I + (1 − keep) · A') − I."""
    eye = torch.eye(layers[0].shape[-1])
    row = vit.rollout(2 * (keep * eye + (1 - keep) * weights) - eye for weights in layers)[:, 0, 1:]
    return row / row.sum(dim=1, keepdim=True)


def classify_with_a_padded_batch(
    patches: Tensor, token: Tensor, registers: Tensor, positions: Tensor, head: Tensor, pool: str
) -> Tensor:
    end = 1 + patches.shape[1]
    x = F.pad(patches, (0, 0, 1, len(registers)))
    x[:, 0], x[:, end:] = token, registers
    x = x + F.pad(positions, (0, 0, 0, len(registers)))
    x = x + F.scaled_dot_product_attention(x, x, x, scale=1.0)
    return {"token": x[:, 0], "mean": x[:, 1:end].mean(dim=1)}[pool] @ head


# ---- lesson 12 ---------------------------------------------------------------------------------------------------


def best_row_by_row(scores: Tensor, n: int) -> tuple[Tensor, Tensor]:
    rows = [max(range(i, i + n), key=scores.tolist().__getitem__) for i in range(0, len(scores), n)]
    return scores[rows], torch.tensor(rows)


def pair_loss_by_softplus(chosen: Tensor, rejected: Tensor) -> Tensor:
    return F.softplus(rejected - chosen).mean()


def pair_loss_as_classification(chosen: Tensor, rejected: Tensor) -> Tensor:
    return F.cross_entropy(torch.stack([chosen, rejected], dim=1), torch.zeros(len(chosen), dtype=torch.long))


def kl_story_by_story(policy: Tensor, reference: Tensor, answered: Tensor) -> Tensor:
    rows = zip(policy, reference, answered, strict=True)
    return torch.stack([p[seen].sum() - r[seen].sum() for p, r, seen in rows]).mean()


def advantages_by_the_closed_form(rewards: Tensor, values: Tensor, gamma: float, lam: float) -> Tensor:
    after = F.pad(values[:, 1:], (0, 1))
    delta, found = rewards + gamma * after - values, torch.zeros_like(values)
    for t in range(values.shape[1]):
        for k in range(t, values.shape[1]):
            found[:, t] += (gamma * lam) ** (k - t) * delta[:, k]
    return found


def clipped_by_sign(new: Tensor, old: Tensor, advantages: Tensor, clip: float) -> Tensor:
    ratio = (new - old).exp()
    limited = torch.where(advantages > 0, ratio.clamp(max=1 + clip), ratio.clamp(min=1 - clip))
    return limited * advantages


def dpo_by_pairs_of_rewards(
    chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor, beta: float
) -> Tensor:
    return pair_loss_by_softplus(beta * (chosen - ref_chosen), beta * (rejected - ref_rejected))


# ---- lesson 15 ---------------------------------------------------------------------------------------------------


def step_by_merging(state: Any, Q: Tensor, K: Tensor, V: Tensor, seen: Tensor) -> Any:
    scores = (Q @ K.T / K.shape[1] ** 0.5).masked_fill(~seen, -torch.inf)
    highest = scores.max(dim=1, keepdim=True).values
    weights = torch.where(seen, (scores - highest).exp(), 0.0)
    return efficient_attention.merge.reference(state, (highest, weights.sum(dim=1, keepdim=True), weights @ V))


def step_key_by_key(state: Any, Q: Tensor, K: Tensor, V: Tensor, seen: Tensor) -> Any:
    m, total, mixture = (part.clone() for part in state)
    for i, j in seen.nonzero().tolist():
        score = Q[i] @ K[j] / len(K[j]) ** 0.5
        higher = torch.maximum(m[i], score)
        c, weight = (m[i] - higher).exp(), (score - higher).exp()
        m[i], total[i], mixture[i] = higher, c * total[i] + weight, c * mixture[i] + weight * V[j]
    return m, total, mixture


def merge_with_logarithms(one: Any, other: Any) -> Any:
    """One softmax over two keys, a machine each, whose scores are the logarithms of their sums."""
    scores = torch.cat([one[0] + one[1].log(), other[0] + other[1].log()], dim=1)
    higher = torch.cat([one[0], other[0]], dim=1).amax(dim=1, keepdim=True)
    weights, means = scores.softmax(dim=1), [(state[2] / state[1]).nan_to_num() for state in (one, other)]
    total = torch.exp(scores.logsumexp(dim=1, keepdim=True) - higher)
    mixture = (weights[:, :1] * means[0] + weights[:, 1:] * means[1]) * total
    return higher, total.nan_to_num(), mixture.nan_to_num()


def merge_case_by_case(one: Any, other: Any) -> Any:
    if not one[1].any():
        return other
    if not other[1].any():
        return one
    higher = torch.max(one[0], other[0])
    return higher, *(sum(state[i] * (state[0] - higher).exp() for state in (one, other)) for i in (1, 2))


def band_diagonal_by_diagonal(q: Tensor, k: Tensor, reach: int) -> Tensor:
    n, scores = len(q), torch.full((len(q), 2 * reach + 1), -torch.inf)
    for away in range(-reach, reach + 1):
        rows = slice(max(0, -away), min(n, n - away))
        keys = slice(rows.start + away, rows.stop + away)
        scores[rows, reach + away] = (q[rows] * k[keys]).sum(dim=1) / q.shape[1] ** 0.5
    return scores


def linear_step_by_step(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    state, outputs = None, []
    for now in range(len(q)):
        output, state = step(state, *(x[None, None, now] for x in (q, k, v)))
        outputs.append(output[0, 0])
    return torch.stack(outputs)


def linear_by_matrix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = (q @ k.mT).tril()
    return weights / (weights.sum(dim=1, keepdim=True) + 1e-9) @ v


def linear_of_the_package(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    counted = torch.cat([v, torch.ones(len(v), 1)], dim=1)
    mixed = causal_sums(*(x[None, None] for x in (q, k, counted)), chunk=2)[0, 0]
    return mixed[:, :-1] / mixed[:, -1:]


def mask_of_the_package(layout: Tensor, size: int, n: int) -> Tensor:
    x = torch.zeros(1, 1, n, 1)
    return BlockSparse(lambda blocks: layout, block=size).mask(x, x, Causal()).dense(n, n)


def mask_pair_by_pair(layout: Tensor, size: int, n: int) -> Tensor:
    return torch.tensor([[j <= i and bool(layout[i // size, j // size]) for j in range(n)] for i in range(n)])


def operations_block_by_block(layout: Tensor, size: int, d: int) -> int:
    return sum(2 * size * d * size + 2 * size * size * d for row in layout.tolist() for allowed in row if allowed)


def features_of_the_package(x: Tensor, directions: Tensor) -> Tensor:
    return log_features(x, directions).exp()


# ---- all of them -------------------------------------------------------------------------------------------------

WAYS: list[tuple[Exercise, Callable[..., Any]]] = [
    (start_here.softmax, softmax_by_logarithm),
    (bahdanau_attention.masked_softmax, masked_softmax_row_by_row),
    (bahdanau_attention.masked_softmax, masked_softmax_without_nan),
    (bahdanau_attention.masked_softmax, masked_softmax_by_exponentials),
    (bahdanau_attention.context, context_by_matrices),
    (bahdanau_attention.alignment_error_rate, error_rate_by_counting),
    (bahdanau_attention.estimate_gradient, gradient_score_by_score),
    (bahdanau_attention.attend, attend_with_low_scores),
    (scoring_functions.cosine_score, cosine_of_normalized),
    (scoring_functions.cosine_score, cosine_by_pytorch),
    (bahdanau_attention.attention_step, step_sentence_by_sentence),
    (scoring_functions.soft_lookup, lookup_with_one_hot),
    (scoring_functions.attend, attend_by_pytorch),
    (scoring_functions.general_lookup, general_lookup_by_pytorch),
    (scoring_functions.general_lookup, general_lookup_memory_by_memory),
    (self_attention.mask_from_lengths, mask_word_by_word),
    (self_attention.attend_per_head, heads_by_names),
    (self_attention.attend_per_head, heads_from_pieces),
    (self_attention.causal_mask, causal_by_diagonal),
    (self_attention.cross_attention, cross_by_pytorch),
    (self_attention.prune_heads, pruned_head_by_head),
    (self_attention.reach, reach_by_paths),
    (self_attention.attend_and_record, record_with_low_scores),
    (self_attention.causal_heads, causal_by_pytorch),
    (self_attention.multi_head, AttentionByPytorch),
    (positions.waves, sinusoid),
    (positions.rotary, rotary_with_complex_numbers),
    (positions.rotary, rotary_with_matrices),
    (positions.pair_up, pair_up_with_slices),
    (positions.alibi_bias, alibi_of_the_package),
    (positions.relative_bias, relative_of_the_package),
    (positions.linear_probe, probe_by_descent),
    (positions.linear_probe, probe_by_inverse),
    (positions.attend_with_past, attend_to_what_is_turned),
    (transformer.normalize, layer_norm),
    (transformer.normalize, lambda x, gain, shift, epsilon: F.layer_norm(x, gain.shape, gain, shift, epsilon)),
    (transformer.learning_rate, rates_of_the_package),
    (transformer.three_masks, masks_of_the_package),
    (decoding.smoothed_loss, smoothed_by_pytorch),
    (decoding.smoothed_loss, smoothed_by_logarithm),
    (decoding.cached_attention, cached_by_pytorch),
    (decoding.read_on, read_on_token_by_token),
    (decoding.beam_step, beams_sorted_in_python),
    (decoding.beam_step, beams_from_each_beams_best),
    (transformer.training_loss, loss_of_the_whole_target),
    (transformer.training_loss, loss_word_by_word),
    (tokenizers.counted_pairs, pairs_counted_by_place),
    (tokenizers.counted_pairs, pairs_sorted_twice),
    (tokenizers.merged, merged_by_the_package),
    (tokenizers.merged, merged_from_a_stack),
    (tokenizers.next_merge, next_merge_from_exercises),
    (tokenizers.encoded, encoded_by_rank),
    (tokenizers.streamed, streamed_by_hand),
    (tokenizers.merged_words, words_merged_by_pattern),
    (bert_masking.hide, hide_place_by_place),
    (bert_masking.hide, hide_with_lists),
    (bert_masking.hidden_loss, hidden_loss_of_the_package),
    (bert_masking.hidden_loss, hidden_loss_by_logarithm),
    (bert_masking.hidden_loss, hidden_loss_without_nan),
    (bert_masking.sentence_pair, pair_of_the_package),
    (bert_masking.fine_tune, step_by_hand),
    (bert_masking.best_span, span_from_a_table),
    (bert_masking.best_span, span_by_search),
    (bert_masking.count_parameters, count_a_model),
    (bert_masking.weighted_loss, loss_by_index),
    (gpt_pretraining.attend, attend_by_hand),
    (gpt_pretraining.attend, attend_head_by_head),
    (gpt_pretraining.attend, attend_as_the_package),
    (decoding.top_p, top_p_from_the_rarest),
    (decoding.top_p, top_p_token_by_token),
    (decoding.top_p, top_p_by_ranks),
    (gpt_pretraining.count_parameters, count_by_the_package),
    (gpt_pretraining.count_parameters, count_a_gpt),
    (scaling_laws.utilization, utilisation_by_the_package),
    (gpt_pretraining.first_loss, first_loss_from_a_distribution),
    (gpt_pretraining.bits_per_byte, bits_by_power),
    (scaling_laws.accumulated_gradient, gradient_of_one_batch),
    (scaling_laws.one_round, round_by_values),
    (scaling_laws.fit_terms, terms_by_normal_equations),
    (scaling_laws.best_size, size_by_search),
    (scaling_laws.prefix_scores, prefix_scores_by_diagonal),
    (adapting.lora_forward, lora_with_a_merged_weight),
    (adapting.count_adapters, adapters_of_the_package),
    (adapting.switch, switch_at_once),
    (adapting.pair_inputs, pairs_piece_by_piece),
    (adapting.span_targets, spans_by_groups),
    (adapting.balance, balance_of_the_package),
    (vit_patches.cut, cut_by_unfolding),
    (vit_patches.cut, cut_square_by_square),
    (vit_patches.cut, cut_by_names),
    (vit_patches.count_weights, weights_by_the_package),
    (vit_patches.mean_vit, mean_vit_by_reduce),
    (vit_patches.hurts, hurts_by_two_questions),
    (vit_patches.interpolate_positions, positions_of_the_package),
    (vit_patches.roll, roll_by_whole_matrices),
    (vit_patches.roll, roll_by_the_package),
    (vit_patches.classify, classify_with_a_padded_batch),
    (preferences.best_rows, best_row_by_row),
    (preferences.pair_loss, pair_loss_by_softplus),
    (preferences.pair_loss, pair_loss_as_classification),
    (preferences.estimated_kl, kl_story_by_story),
    (preferences.advantages, advantages_by_the_closed_form),
    (preferences.clipped, clipped_by_sign),
    (preferences.dpo_loss, dpo_by_pairs_of_rewards),
    (efficient_attention.tile_step, step_by_merging),
    (efficient_attention.tile_step, step_key_by_key),
    (efficient_attention.merge, merge_with_logarithms),
    (efficient_attention.merge, merge_case_by_case),
    (efficient_attention.band_scores, band_diagonal_by_diagonal),
    (efficient_attention.causal_linear, linear_step_by_step),
    (efficient_attention.causal_linear, linear_of_the_package),
    (efficient_attention.causal_linear, linear_by_matrix),
    (efficient_attention.block_mask, mask_of_the_package),
    (efficient_attention.block_mask, mask_pair_by_pair),
    (efficient_attention.operations, operations_block_by_block),
    (efficient_attention.positive_features, features_of_the_package),
]


@pytest.mark.parametrize(
    ("exercise", "answer"), WAYS, ids=[f"{exercise.name}: {answer.__name__}" for exercise, answer in WAYS]
)
def test_another_right_way_is_right(exercise: Exercise, answer: Callable[..., Any]) -> None:
    assert exercise.judge(answer) == CheckResult("correct")


def test_a_layer_that_is_no_layer_yet_is_told_what_is_missing() -> None:
    """A class in which nothing stands, one without a `forward`, and one whose weights have other names."""

    class Blank(nn.Module):
        def __init__(self, d_model: int, heads: int):
            super().__init__()

        def forward(self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None) -> Any:
            return ...

    class Misnamed(Blank):
        def __init__(self, d_model: int, heads: int):
            super().__init__(d_model, heads)
            self.query = nn.Linear(d_model, d_model)

    class Broken(AttentionByPytorch):
        def forward(self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None) -> Any:
            return self.W_1(x)

    check = self_attention.multi_head.judge
    assert check(Broken).message.endswith("(line 2 of Broken: return self.W_1(x))")
    assert check(Blank).status == "not attempted"
    assert "found weights in query; expected W_Q, W_K, W_V, W_O" in check(Misnamed).message
    assert check(int).status == "raised an error"


def test_rows_that_are_paired_up_give_the_packages_rotation_the_scores_of_neighbours() -> None:
    """Which is what exercise 3 of lesson 04 claims: the two rotations are equal up to an order of coordinates."""
    heads, places, x = 2, torch.arange(5.0), randn(5, 12, seed=1)
    W_Q, W_K = randn(12, 12, seed=2), randn(12, 12, seed=3)

    def projected(W: Tensor) -> Tensor:
        return (x @ W.T).view(1, 5, heads, -1).transpose(1, 2)

    q, k = (positions.rotary.reference(projected(W), places) for W in (W_Q, W_K))
    turn = Rotary(6).rotate
    paired_q, paired_k = (turn(projected(positions.pair_up.reference(W, heads))) for W in (W_Q, W_K))
    torch.testing.assert_close(paired_q @ paired_k.mT, q @ k.mT)
    for wrong in positions.pair_up.wrong_answers.values():
        paired_q, paired_k = (turn(projected(wrong(W, heads))) for W in (W_Q, W_K))
        assert (paired_q @ paired_k.mT - q @ k.mT).abs().max() > 0.1
