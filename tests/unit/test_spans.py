"""T5's span corruption: what is cut, how often, where, and that nothing is lost."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, groupby

import pytest
import torch
from hypothesis import given, settings, strategies as st

from tfbook.text import SpanCorruption, corrupt_spans, restore_spans, span_mask

T5 = SpanCorruption()
CORRUPTIONS = st.builds(SpanCorruption, rate=st.floats(0.01, 0.99), mean_length=st.floats(1, 10))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def runs(mask: Sequence[bool]) -> list[tuple[bool, int]]:
    """Each run of equal values and its length."""
    return [(value, len(list(group))) for value, group in groupby(mask)]


# ---- nothing is lost ---------------------------------------------------------------------------------------------


@given(text=st.lists(st.integers(0, 99), min_size=2, max_size=40), corruption=CORRUPTIONS, seed=st.integers(0, 2**32))
@settings(max_examples=100)
def test_source_and_target_give_the_text_back(text: list[int], corruption: SpanCorruption, seed: int) -> None:
    """And every token stands in exactly one of them; sentinels come in order, in the target one more."""
    source, target = corrupt_spans(text, 100, corruption, generator=seeded(seed))
    assert restore_spans(source, target, 100) == text
    cut, spans = corruption.counts(len(text))
    assert Counter(token for token in source + target if token < 100) == Counter(text)
    assert [token for token in source if token >= 100] == [*range(100, 100 + spans)]
    assert [token for token in target if token >= 100] == [*range(100, 101 + spans)]
    assert (len(source), len(target)) == (len(text) - cut + spans, cut + spans + 1)


def test_the_papers_example() -> None:
    """Thank you for inviting me to your party last week (Raffel et al., 2020, figure 2), with words 2, 3 and 8 cut."""
    words = ["thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week"]
    for seed in range(2000):
        source, target = corrupt_spans(range(10), 10, SpanCorruption(rate=0.3, mean_length=1.5), generator=seeded(seed))
        if target == [10, 2, 3, 11, 8, 12]:
            break
    tell = [*words, "<X>", "<Y>", "<Z>"]
    assert " ".join(tell[i] for i in source) == "thank you <X> me to your party <Y> week"
    assert " ".join(tell[i] for i in target) == "<X> for inviting <Y> last <Z>"


def test_a_models_target_may_lack_sentinels_or_begin_without_one() -> None:
    assert restore_spans([1, 100, 2, 101, 3], [8, 101, 9, 9, 102], 100) == [1, 2, 9, 9, 3]


# ---- statistics --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time", "cut", "spans"), [(512, 77, 26), (100, 15, 5), (40, 6, 2), (20, 3, 1), (3, 1, 1), (2, 1, 1)]
)
def test_the_counts_are_those_of_t5(time: int, cut: int, spans: int) -> None:
    """15% of the tokens in spans of 3, each rounded, as `random_spans_noise_mask` of T5 counts them."""
    assert T5.counts(time) == (cut, spans)
    for seed in range(20):
        mask = span_mask(time, T5, generator=seeded(seed)).tolist()
        assert sum(mask) == cut
        assert sum(value for value, _ in runs(mask)) == spans


def test_the_share_and_the_mean_length_are_those_asked_for() -> None:
    """Over many texts of many lengths: 15% and 3 within 1%."""
    generator = seeded()
    masks = [span_mask(time, T5, generator=generator).tolist() for time in range(100, 600, 5)]
    tokens, cut = sum(map(len, masks)), sum(map(sum, masks))
    spans = sum(value for mask in masks for value, _ in runs(mask))
    assert cut / tokens == pytest.approx(0.15, rel=0.01)
    assert cut / spans == pytest.approx(3, rel=0.01)


def test_all_ways_to_cut_are_equally_likely() -> None:
    """Of 9 tokens 4 in 2 spans: 45 masks, each in a 45th of draws, within five standard errors."""
    corruption, generator = SpanCorruption(rate=4 / 9, mean_length=2), seeded()
    found = Counter(tuple(span_mask(9, corruption, generator=generator).tolist()) for _ in range(9000))
    every = {tuple(place in cut for place in range(9)) for cut in combinations(range(9), 4)}
    assert set(found) == {mask for mask in every if sum(value for value, _ in runs(mask)) == 2}
    assert len(found) == 45
    assert all(abs(count - 200) < 5 * 200**0.5 for count in found.values())


@given(time=st.integers(2, 60), corruption=CORRUPTIONS)
@settings(max_examples=60)
def test_any_rate_and_length_leave_something_and_cut_something(time: int, corruption: SpanCorruption) -> None:
    cut, spans = corruption.counts(time)
    assert 1 <= spans <= min(cut, time - cut + 1)
    assert 1 <= cut <= time - 1
    assert int(span_mask(time, corruption).sum()) == cut


def test_the_same_generator_cuts_the_same() -> None:
    text = list(range(50))
    one, other, third = (corrupt_spans(text, 50, T5, generator=seeded(seed)) for seed in (1, 1, 2))
    assert one == other
    assert one != third


# ---- refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 0.0}, "rate is 0.0; expected a share between 0 and 1"),
        ({"rate": 1.0}, "rate is 1.0; expected a share between 0 and 1"),
        ({"mean_length": 0.5}, "mean_length is 0.5; expected 1 or more"),
    ],
)
def test_impossible_corruptions_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SpanCorruption(**options)


def test_a_sentinel_in_the_text_and_a_text_of_one_token_are_refused() -> None:
    with pytest.raises(ValueError, match="ids holds 7; expected ids below first_sentinel, 5"):
        corrupt_spans([1, 7, 2], 5, T5)
    with pytest.raises(ValueError, match="the text has 1 tokens; expected two or more"):
        corrupt_spans([1], 5, T5)
