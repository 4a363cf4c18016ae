"""Decoding by one recorded step: the same tokens as with a cache that grows, without a look at a value."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from recorded import MODELS, as_it_is
from torch import nn
from traced_models import SMALL, VOCAB, attending, gpt
from waiting import Waits

from tfbook.attention import POSITIONS, MultiHeadAttention, record
from tfbook.attention.efficient import Banded
from tfbook.generation import frozen, sampling
from tfbook.generation.captured import Captured, can_be_captured
from tfbook.generation.sampling import generate, greedy, repetition_penalty, stream, temperature, top_k, top_p
from tfbook.models.adapters import add_lora
from tfbook.models.experts import MixtureOfExperts
from tfbook.models.language_model import BidirectionalModel, LanguageModel

PROMPT = torch.arange(15).view(3, 5)


@pytest.mark.parametrize("name", MODELS)
def test_a_fixed_memory_changes_nothing(name: str) -> None:
    model = MODELS[name]().eval().double()
    read, cache, new = Captured(model, 30, record=as_it_is), model.new_cache(), PROMPT
    with torch.inference_mode():
        for _ in range(26):
            expected = model(new, cache=cache)[:, -1]
            torch.testing.assert_close(read(new), expected, rtol=0, atol=1e-6)
            new = expected.argmax(dim=-1, keepdim=True)


@pytest.mark.parametrize("position", POSITIONS)
def test_a_fixed_memory_in_few_bits_is_as_close(position: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen model whose results stay in bfloat16, as on a GPU, beside the same with a cache that grows."""
    monkeypatch.setattr(frozen, "STAYS_ON", ("cpu",))
    model = frozen.Frozen(gpt(position=position), torch.bfloat16)
    read, cache, new = Captured(model, 30, record=as_it_is), model.new_cache(), PROMPT
    with torch.inference_mode():
        for _ in range(26):
            expected = model(new, cache=cache)[:, -1]
            assert (read(new) - expected).std() < 0.03 * expected.std()
            new = expected.argmax(dim=-1, keepdim=True)


def test_the_step_does_not_look_at_values() -> None:
    model = gpt(position="rotary").eval()
    with torch.inference_mode():
        read = Captured(model, 8, record=as_it_is)
        read(PROMPT)
        read(PROMPT[:, :1])
        with Waits() as waits:
            read(PROMPT[:, 1:2])
    assert waits.found == []


# ---- which models ------------------------------------------------------------------------------------------------


class Edited(MultiHeadAttention):
    """A reader's, which might print or count."""


def hooked() -> LanguageModel:
    model = gpt()
    model.stack.register_forward_hook(lambda *_: None)
    return model


REFUSED: dict[str, Callable[[], LanguageModel]] = {
    "edited": partial(gpt, mixer=Edited),
    "hooked": hooked,
    "experts, which look for their tokens": partial(gpt, feed_forward=partial(MixtureOfExperts, experts=2)),
    "another implementation": partial(attending, Banded(4)),
    "adapted": lambda: add_lora(gpt(), rank=2, alpha=2.0),
    "bidirectional": lambda: BidirectionalModel(VOCAB, SMALL),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_with_unknown_parts_is_not_recorded(name: str) -> None:
    assert not can_be_captured(REFUSED[name]())


def test_known_parts_are_recorded_unless_somebody_watches() -> None:
    model = gpt()
    assert can_be_captured(model)
    with record(model):
        assert not can_be_captured(model)
    assert can_be_captured(model)


# ---- as on a GPU -------------------------------------------------------------------------------------------------

FILTERS: dict[str, list[sampling.Filter]] = {
    "all tokens": [],
    "greedy": [greedy],
    "mixed": [temperature(0.7), top_k(20), top_p(0.9), repetition_penalty(1.2)],
    "a reader's": [lambda logits, ids: logits.masked_fill(logits < logits.mean(), -torch.inf)],
}


@pytest.mark.parametrize("name", FILTERS)
def test_texts_do_not_depend_on_the_device(name: str, request: pytest.FixtureRequest) -> None:
    """Rows end at different tokens, and the text where the last one ends."""
    torch.manual_seed(0)
    model = gpt(position="rotary")
    options: dict[str, Any] = {"max_new_tokens": 40, "filters": FILTERS[name], "stop": range(0, VOCAB, 9)}
    here = [generate(model, PROMPT, **options, generator=torch.Generator().manual_seed(seed)) for seed in range(5)]
    request.getfixturevalue("as_on_a_gpu")
    there = [generate(model, PROMPT, **options, generator=torch.Generator().manual_seed(seed)) for seed in range(5)]
    for a, b in zip(here, there, strict=True):
        assert a.tolist() == b.tolist()
    seeded = torch.Generator().manual_seed(0)
    assert [PROMPT, *stream(model, PROMPT, **options, generator=seeded)][1].tolist() == here[0][:, 5:6].tolist()


@pytest.mark.parametrize("filters", [[], [greedy]])
@pytest.mark.usefixtures("as_on_a_gpu")
def test_weights_that_are_nan_are_found_at_the_next_look(filters: list[sampling.Filter]) -> None:
    model = gpt()
    nn.init.constant_(model.stack.blocks[0].feed_forward.branch.down.bias, torch.nan)
    with pytest.raises(ValueError, match="NaN or \\+∞"):
        generate(model, PROMPT, max_new_tokens=20, filters=filters)


@pytest.mark.usefixtures("as_on_a_gpu")
def test_a_prompt_is_checked_at_the_door() -> None:
    with pytest.raises(ValueError, match="ids holds ids"):
        generate(gpt(), PROMPT + VOCAB, max_new_tokens=2)


@pytest.mark.gpu
@pytest.mark.parametrize("name", MODELS)
def test_a_cuda_graph_writes_the_same_text(name: str) -> None:
    """With the true graph, beside the growing cache on the same device."""
    model = MODELS[name]().cuda().eval()
    prompt = PROMPT.cuda()
    found = generate(model, prompt, max_new_tokens=26, filters=[greedy])
    cache, new = model.new_cache(), prompt
    with torch.inference_mode():
        for place in range(5, 31):
            logits = model(new, cache=cache)[:, -1]
            new = found[:, place : place + 1]
            assert (logits.gather(-1, new)[:, 0] >= logits.amax(dim=-1) - 1e-3).all()
