"""Memory networks against loops over words, sentences and hops, and what order, padding and nothing do to them."""

import json
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tfbook.models.memory_network import (
    MemoryConfig,
    MemoryNetwork,
    ages,
    memory_hop,
    weighted_bag,
    word_weights,
)

CONFIG = MemoryConfig(vocab=11, sentences=5, d_model=4, hops=3)
STORY = torch.tensor([[[1, 2, 3], [4, 5, 0], [6, 0, 0], [0, 0, 0]], [[7, 8, 9], [1, 4, 2], [10, 3, 0], [5, 6, 7]]])
QUESTION = torch.tensor([[2, 9, 0], [3, 3, 1]])


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(3)


def by_loops(
    model: MemoryNetwork, story: list[list[int]], question: list[int]
) -> tuple[list[float], list[list[float]]]:
    """Logits and weights of one story in plain Python."""
    width = model.config.d_model
    tables = [table.weight.tolist() for table in model.tables]
    times = [time.weight.tolist() for time in model.times]
    sentences = [sentence for sentence in story if any(sentence)]

    def bag(words: list[int], table: list[list[float]]) -> list[float]:
        total, places = [0.0] * width, len(words)
        for j, word in enumerate(words, start=1):
            for k in range(1, width + 1):
                factor = (1 - j / places) - (k / width) * (1 - 2 * j / places)
                total[k - 1] += factor * table[word][k - 1]
        return total

    def stored(number: int) -> list[list[float]]:
        last = len(sentences) - 1
        return [
            [x + t for x, t in zip(bag(words, tables[number]), times[number][last - i], strict=True)]
            for i, words in enumerate(sentences)
        ]

    u, looked = bag(question, tables[0]), []
    for hop in range(model.config.hops):
        pair = (hop, hop + 1) if model.config.tying == "adjacent" else (0, 1)
        addresses, contents = (stored(number) for number in pair)
        scores = [math.exp(sum(a * b for a, b in zip(m, u, strict=True))) for m in addresses]
        p = [score / sum(scores) for score in scores]
        o = [sum(weight * c[k] for weight, c in zip(p, contents, strict=True)) for k in range(width)]
        carried = u if model.config.tying == "adjacent" else (model.H.weight @ torch.tensor(u)).tolist()
        u = [a + b for a, b in zip(carried, o, strict=True)]
        looked.append(p)
    return [sum(a * b for a, b in zip(row, u, strict=True)) for row in tables[-1]], looked


@pytest.mark.parametrize("tying", ["adjacent", "layer-wise"])
@pytest.mark.parametrize("hops", [1, 3])
def test_a_network_is_its_loops(tying: str, hops: int) -> None:
    model = MemoryNetwork(replace(CONFIG, tying=tying, hops=hops))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    with torch.no_grad():
        for table in model.tables:
            table.weight[0] = 0
    found = model(STORY, QUESTION)
    for row in range(2):
        logits, looked = by_loops(model, STORY[row].tolist(), QUESTION[row].tolist())
        torch.testing.assert_close(found.logits[row].tolist(), logits, rtol=1e-4, atol=1e-4)
        weights = found.weights[row, :, : len(looked[0])]
        torch.testing.assert_close(weights, torch.tensor(looked), rtol=1e-4, atol=1e-5)


def test_padding_changes_nothing_and_gets_no_weight() -> None:
    model = MemoryNetwork(CONFIG)
    one = model(STORY[:1, :3], QUESTION[:1])
    other = model(STORY[:1], QUESTION[:1])
    torch.testing.assert_close(one.logits, other.logits)
    assert other.weights[0, :, 3].abs().max() == 0


def test_an_empty_memory_leaves_the_question_as_it_is() -> None:
    model = MemoryNetwork(CONFIG)
    found = model(torch.zeros_like(STORY), QUESTION)
    assert found.weights.abs().max() == 0
    expected = weighted_bag(model.tables[0](QUESTION)) @ model.tables[-1].weight.T
    torch.testing.assert_close(found.logits, expected)
    found.logits.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_without_ages_the_order_of_sentences_does_not_matter_and_with_them_it_does() -> None:
    model = MemoryNetwork(CONFIG)
    order = torch.tensor([2, 0, 3, 1])
    story = STORY[1:]
    assert not torch.allclose(model(story, QUESTION[1:]).logits, model(story[:, order], QUESTION[1:]).logits)
    for time in model.times:
        torch.nn.init.zeros_(time.weight)
    plain, shuffled = model(story, QUESTION[1:]), model(story[:, order], QUESTION[1:])
    torch.testing.assert_close(plain.logits, shuffled.logits)
    torch.testing.assert_close(plain.weights[:, :, order], shuffled.weights)


def test_a_weighted_bag_tells_orders_apart_and_a_short_sentence_is_a_padded_one() -> None:
    a, b = torch.randn(2, 6)
    assert not torch.allclose(weighted_bag(torch.stack([a, b])), weighted_bag(torch.stack([b, a])))
    corners = word_weights(8, 50)
    assert corners[0, 0] == pytest.approx(1 - 1 / 8 - 0.75 / 50)
    torch.testing.assert_close(corners[:, -1], torch.arange(1, 9) / 8)


def test_ages_count_the_sentences_behind() -> None:
    filled = torch.tensor([[True, True, True, False], [True, False, False, False], [False] * 4])
    assert ages(filled).tolist() == [[2, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


def test_gradients_of_a_hop() -> None:
    inputs = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 3), (2, 4, 3), (2, 4, 3))]
    filled = torch.tensor([[True, True, False, True], [False] * 4])
    assert torch.autograd.gradcheck(lambda *x: memory_hop(*x, filled), inputs)


def test_the_parts_are_those_that_were_given() -> None:
    def last(query: Tensor, addresses: Tensor, contents: Tensor, filled: Tensor) -> tuple[Tensor, Tensor]:
        return contents[:, -1], filled.float() / 4

    model = MemoryNetwork(replace(CONFIG, hops=1), bag=lambda vectors: vectors.sum(dim=-2), hop=last)
    found = model(STORY[1:], QUESTION[1:])
    first, second = model.tables
    u = first(QUESTION[1:]).sum(dim=1) + second(STORY[1:, -1]).sum(dim=1) + model.times[1].weight[0]
    torch.testing.assert_close(found.logits, u @ second.weight.T)


def test_a_config_is_saved_and_checked() -> None:
    config = replace(CONFIG, tying="layer-wise")
    assert MemoryConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    with pytest.raises(ValueError, match="hops is 0; expected 1 or more"):
        replace(CONFIG, hops=0)
    with pytest.raises(ValueError, match="tying is 'all'; expected 'adjacent' or 'layer-wise'"):
        replace(CONFIG, tying="all")
    with pytest.raises(ValueError, match="the story has 6 sentences; expected at most 5"):
        MemoryNetwork(CONFIG)(torch.ones(1, 6, 3, dtype=torch.long), QUESTION[:1])
