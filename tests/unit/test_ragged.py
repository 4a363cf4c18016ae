"""Prompts of different lengths in one batch: each says what it says alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from recorded import MODELS, as_it_is
from torch import Tensor, nn
from traced_models import SMALL, VOCAB, attending, gpt
from waiting import Waits

from tfbook.attention.efficient import Banded
from tfbook.attention.masks import Band, Prefix
from tfbook.generation import sampling
from tfbook.generation.best_of_n import best_of_n
from tfbook.generation.captured import Captured
from tfbook.generation.sampling import (
    Filter,
    generate,
    greedy,
    repetition_penalty,
    stream,
    temperature,
    top_k,
    top_p,
)
from tfbook.models.adapters import add_lora
from tfbook.models.blocks import StackCache
from tfbook.models.gpt import Gpt
from tfbook.models.language_model import BidirectionalModel, LanguageModel
from tfbook.text import generated_answers

PAD = -1  # no token of the vocabulary
PROMPTS = [[1, 2, 3, 4, 5], [6], [7, 8, 9], [10, 11, 12, 13]]
LENGTHS = torch.tensor([len(prompt) for prompt in PROMPTS])
IDS = torch.tensor([prompt + [PAD] * (7 - len(prompt)) for prompt in PROMPTS])
NEW = 12


def drawn(model: LanguageModel) -> LanguageModel:
    """With weights large enough that what it says depends on all that it reads."""
    torch.manual_seed(0)
    for weight in [*model.parameters(), *model.buffers()]:
        if weight.ndim > 1:
            nn.init.normal_(weight, std=0.3)
    return model


def windowed() -> LanguageModel:
    model = gpt(position="rotary")
    model.mask = Band(3, 0)
    return model


CASES: dict[str, Callable[[], LanguageModel]] = {
    **MODELS,
    "window": windowed,
    "adapted": lambda: add_lora(gpt(), rank=2, alpha=2.0),
}
FILTERS: dict[str, list[Filter]] = {
    "greedy": [greedy],
    "mixed": [repetition_penalty(1.3), temperature(0.7), top_k(20), top_p(0.9)],
}


def spoken(model: LanguageModel, ids: Tensor, filters: list[Filter], said: Tensor, **options: Any) -> Tensor:
    """The filtered logits at each step of a text that goes on as `said` does."""
    seen: list[Tensor] = []

    def dictated(logits: Tensor, text: Tensor) -> Tensor:
        seen.append(logits)
        return torch.full_like(logits, -torch.inf).scatter(1, said[:, len(seen) - 1, None], 0.0)

    generate(model, ids, max_new_tokens=said.shape[1], filters=[*filters, dictated], **options)
    return torch.stack(seen, dim=1)


def check_rows(name: str, filters: str) -> None:
    model = drawn(CASES[name]())
    torch.manual_seed(1)
    texts = generate(model, IDS, lengths=LENGTHS, max_new_tokens=NEW, filters=FILTERS[filters])
    assert texts.shape == (4, 5 + NEW)
    said = torch.stack([row[n : n + NEW] for row, n in zip(texts, LENGTHS, strict=True)])
    together = spoken(model, IDS, FILTERS[filters], said, lengths=LENGTHS)
    for row, prompt in enumerate(PROMPTS):
        assert texts[row].tolist() == [*prompt, *said[row].tolist(), *[PAD] * (5 - len(prompt))]
        alone = spoken(model, torch.tensor([prompt]), FILTERS[filters], said[row : row + 1])[0]
        torch.testing.assert_close(together[row], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("name", CASES)
def test_each_row_says_what_it_says_alone(name: str, filters: str) -> None:
    """The same most probable tokens, and the same logits to sample from."""
    check_rows(name, filters)


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("as_on_a_gpu")
def test_so_it_does_by_a_recorded_step(name: str, filters: str) -> None:
    check_rows(name, filters)


def test_greedy_texts_are_those_of_each_prompt_alone() -> None:
    """Also where rows end at different places: what follows an end repeats it."""
    model = drawn(gpt(position="learned"))
    options: dict[str, Any] = {"max_new_tokens": NEW, "filters": [greedy], "stop": range(0, VOCAB, 4)}
    together = generate(model, IDS, lengths=LENGTHS, **options)
    ends = []
    for row, prompt in zip(together.tolist(), PROMPTS, strict=True):
        alone = generate(model, torch.tensor([prompt]), **options)[0].tolist()
        assert row[: len(alone)] == alone
        assert set(row[len(alone) : len(prompt) + together.shape[1] - 5]) <= {alone[-1]}
        ends.append(len(alone) - len(prompt))
    assert len(set(ends)) > 1
    assert together.shape[1] == 5 + max(ends)


def test_a_stream_yields_what_follows_each_prompt() -> None:
    model = drawn(gpt())
    tokens = torch.cat([*stream(model, IDS, lengths=LENGTHS, max_new_tokens=3, filters=[greedy])], dim=1)
    texts = generate(model, IDS, lengths=LENGTHS, max_new_tokens=3, filters=[greedy])
    assert tokens.tolist() == [row[n : n + 3].tolist() for row, n in zip(texts, LENGTHS, strict=True)]


def test_filters_see_no_padding() -> None:
    seen = []
    generate(gpt(), IDS, lengths=LENGTHS, max_new_tokens=1, filters=[lambda logits, ids: (seen.append(ids), logits)[1]])
    assert seen[0].tolist() == [[1, 2, 3, 4, 5], [6] * 5, [7, 7, 7, 8, 9], [10, 10, 11, 12, 13]]


def test_equal_lengths_are_as_without() -> None:
    """And no mask is needed then."""
    model, ids = drawn(gpt()), IDS[:, :1]
    model.register_forward_pre_hook(lambda _, args, kwargs: caches.append(kwargs["cache"]), with_kwargs=True)
    caches: list[StackCache] = []
    expected = generate(model, ids.abs(), max_new_tokens=NEW, filters=[greedy])
    found = generate(model, IDS.abs(), lengths=torch.ones_like(LENGTHS), max_new_tokens=NEW, filters=[greedy])
    assert torch.equal(found, expected)
    assert all(cache.padding is None for cache in caches)


def test_the_longest_prompt_counts_against_learned_positions() -> None:
    model = gpt(position="learned")
    options: dict[str, Any] = {"lengths": LENGTHS, "max_new_tokens": SMALL.max_length - 5 + 1}
    assert generate(model, IDS, **options).shape == (4, SMALL.max_length + 1)
    with pytest.raises(ValueError, match="a prompt of 5 tokens and max_new_tokens 29 need 33 positions"):
        stream(model, IDS, lengths=LENGTHS, max_new_tokens=29)


def test_the_recorded_step_looks_at_no_value() -> None:
    read = Captured(gpt(position="learned").eval(), 8, padding=torch.tensor([0, 1, 2]), record=as_it_is)
    prompt = torch.arange(15).view(3, 5)
    with torch.inference_mode():
        read(prompt)
        read(prompt[:, :1])
        with Waits() as waits:
            read(prompt[:, 1:2])
    assert waits.found == []


def test_selected_rows_keep_their_padding() -> None:
    model = drawn(gpt(position="learned")).eval()
    cache, rows = model.new_cache(), torch.tensor([2, 0, 2])
    cache.padding = 5 - LENGTHS
    ids = torch.tensor([[0] * (5 - len(prompt)) + prompt for prompt in PROMPTS])
    with torch.inference_mode():
        model(ids, cache=cache)
        logits = model(torch.full((3, 1), 3), cache=cache.select(rows))[:, -1]
        for found, row in zip(logits, rows.tolist(), strict=True):
            torch.testing.assert_close(found, model(torch.tensor([[*PROMPTS[row], 3]]))[0, -1], rtol=1e-5, atol=1e-5)


# ---- the best of several -----------------------------------------------------------------------------------------


def test_the_best_of_several_answers_to_each_prompt() -> None:
    """A score that likes the token 6 finds it more often than chance, and only in the answers."""
    model, stop = drawn(gpt()), 4
    best = best_of_n(
        model,
        IDS,
        lambda answers: (answers.answered & (answers.ids == 6)).sum(dim=1).float(),
        30,
        lengths=LENGTHS,
        max_new_tokens=NEW,
        stop=stop,
    )
    assert best.scores.shape == (4, 30)
    assert best.answers.prompts.tolist() == LENGTHS.tolist()
    for ids, answered, prompt in zip(best.answers.ids, best.answers.answered, PROMPTS, strict=True):
        assert ids[: len(prompt)].tolist() == prompt
        assert int((ids[answered] == 6).sum()) == best.scores[PROMPTS.index(prompt)].max()
        assert PAD not in ids[answered].tolist()


def test_answers_after_prompts_of_different_lengths() -> None:
    """Six positions, of which two are new in each row; the second row ends at once, the third is stopped by nothing."""
    ids = torch.tensor([[5, 5, 5, 5, 7, 9], [5, 9, 9, 0, 0, 9], [5, 5, 7, 8, 9, 0]])
    found = generated_answers(ids, torch.tensor([4, 1, 2]), stop=9)
    assert found.answered.int().tolist() == [[0, 0, 0, 0, 1, 1], [0, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0]]
    with pytest.raises(ValueError, match="start is 2 to 7; expected 0 to 6, the length of the rows"):
        generated_answers(ids, torch.tensor([2, 3, 7]))


# ---- what is refused ---------------------------------------------------------------------------------------------


def prefixed() -> LanguageModel:
    model = gpt()
    model.mask = Prefix(LENGTHS)
    return model


class Means(Gpt):
    """Keeps something that is no cache of attention."""

    def new_cache(self) -> StackCache:
        cache = super().new_cache()
        cache.blocks[1].past = torch.zeros(3)
        return cache


REFUSED: dict[str, tuple[Callable[[], LanguageModel], dict[str, Any], str]] = {
    "empty prompt": (gpt, {"lengths": LENGTHS - 1}, "lengths run from 0 to 4; expected 1 to 7, the rows of ids"),
    "too long": (gpt, {"lengths": LENGTHS + 3}, "lengths run from 4 to 8; expected 1 to 7, the rows of ids"),
    "padding is read": (gpt, {"lengths": LENGTHS + 1}, "ids holds ids from -1 to 13; expected 0 to 49"),
    "no prompts": (gpt, {"ids": IDS[:0], "lengths": LENGTHS[:0]}, r"ids has shape \(0, 7\)"),
    "prefix": (prefixed, {}, r"lengths differ and the model's mask is Prefix.*; expected Causal\(\) or a Band"),
    "both ways": (lambda: BidirectionalModel(VOCAB, SMALL), {}, "the model's mask is None"),
    "another mixer": (lambda: Means(VOCAB, SMALL), {}, "a mixer of the model keeps a Tensor; expected attention"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_impossible_prompts_are_refused_before_the_first_token(case: str) -> None:
    make, options, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        stream(make(), **{"ids": IDS, "lengths": LENGTHS, "max_new_tokens": 2, **options})


@pytest.mark.parametrize("lengths", [LENGTHS[:2], LENGTHS[:, None], LENGTHS.float()], ids=["few", "2-D", "float"])
def test_each_prompt_has_one_length(lengths: Tensor) -> None:
    """Behind the door, since tests check types and shapes at every public one."""
    with pytest.raises(ValueError, match=r"lengths has shape .*; expected one integer for each of 4 prompts"):
        sampling._prompts(gpt(), IDS, lengths)


def test_an_implementation_says_that_it_cannot_hide_padding() -> None:
    with pytest.raises(NotImplementedError, match=r"Banded supports .* masks; got Dense"):
        generate(attending(Banded(4)), IDS, lengths=LENGTHS, max_new_tokens=2)
