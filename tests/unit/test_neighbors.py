"""kNN-LM: a store against loops over its entries, and two texts of which one remembers the other."""

import math
from dataclasses import replace

import pytest
import torch

from tfbook.generation.neighbors import Datastore, interpolate, last_states, neighbor_distribution
from tfbook.models.gpt import GPT2, Gpt

PAD = 0
IDS = torch.tensor([[1, 4, 5, 6, 2], [1, 5, 4, 2, PAD], [1, 7, 2, PAD, PAD]])


@pytest.fixture
def model() -> Gpt:
    torch.manual_seed(0)
    model = Gpt(9, replace(GPT2, d_model=8, heads=2, d_ff=12, layers=2, max_length=16))
    torch.nn.init.normal_(model.embed.weight)
    return model.eval()


@torch.no_grad()
def test_the_last_states_give_the_logits(model: Gpt) -> None:
    torch.testing.assert_close(model.unembed(last_states(model, IDS)), model(IDS))


def test_a_store_holds_each_place_and_what_followed(model: Gpt) -> None:
    store = Datastore.of(model, IDS, PAD)
    assert store.followed.tolist() == [4, 5, 6, 2, 5, 4, 2, 7, 2]
    for entry, (row, place) in enumerate([(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]):
        expected = last_states(model, IDS[row : row + 1, : place + 1])[0, -1]
        torch.testing.assert_close(store.keys[entry], expected, atol=1e-5, rtol=1e-5)


def test_the_nearest_are_nearest() -> None:
    generator = torch.Generator().manual_seed(0)
    store = Datastore(torch.randn(40, 3, generator=generator), torch.arange(40))
    queries = torch.randn(600, 3, generator=generator)  # more than are compared at once
    distances, entries = store.nearest(queries, 4)
    for query, found, numbers in zip(queries, distances, entries, strict=True):
        all_of_them = sorted((math.dist(query, key) ** 2, i) for i, key in enumerate(store.keys))[:4]
        assert numbers.tolist() == [i for _, i in all_of_them]
        assert found.tolist() == pytest.approx([d for d, _ in all_of_them], abs=1e-4)


def test_neighbors_vote_by_their_distance() -> None:
    found = neighbor_distribution(torch.tensor([[0.0, 2.0, 4.0]]), torch.tensor([[3, 1, 3]]), 5, 2.0)
    votes = [1, math.exp(-1), math.exp(-2)]
    expected = [0, votes[1], 0, votes[0] + votes[2], 0]
    torch.testing.assert_close(found, torch.tensor([expected]) / sum(votes))


def test_a_mixture_is_between_both() -> None:
    p, q = torch.tensor([0.2, 0.8]), torch.tensor([0.6, 0.4])
    torch.testing.assert_close(interpolate(p, q, 0.25), torch.tensor([0.3, 0.7]))
    assert torch.equal(interpolate(p, q, 0.0), p)
    assert torch.equal(interpolate(p, q, 1.0), q)
    with pytest.raises(ValueError, match=r"share is 1\.5; expected 0 to 1"):
        interpolate(p, q, 1.5)


def test_a_text_that_the_store_holds_is_remembered(model: Gpt) -> None:
    """Its own place is the nearest, at distance 0, so with one neighbor every next token is sure."""
    store = Datastore.of(model, IDS[:1], PAD)
    found = store.distribution(last_states(model, IDS[:1, :-1])[0], 9, neighbors=1)
    assert found.argmax(dim=-1).tolist() == IDS[0, 1:].tolist()
    torch.testing.assert_close(found.sum(dim=-1), torch.ones(4))
    assert float(found.max(dim=-1).values.min()) == 1


def test_the_model_stays_in_its_mode(model: Gpt) -> None:
    Datastore.of(model.train(), IDS, PAD)
    assert model.training


def test_errors_name_what_came(model: Gpt) -> None:
    store = Datastore.of(model, IDS, PAD)
    for count in (0, 10):
        with pytest.raises(ValueError, match=f"count is {count}; expected 1 to 9, the entries of the store"):
            store.nearest(store.keys, count)
    with pytest.raises(ValueError, match=r"ids has shape \(1, 1\) and no token that follows another one"):
        Datastore.of(model, torch.tensor([[1]]), PAD)
