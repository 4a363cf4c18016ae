"""Translators with and without attention: their table, gradients, time and memory, on cases worked out by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import torch
from toy_translators import toy_corpus

from tfbook import runtime
from tfbook.course.translators import LENGTHS, Task
from tfbook.lessons.bahdanau_attention import figures, study
from tfbook.models import seq2seq
from tfbook.text import Pair, collate


def row(decoder: str, seed: int, bleu: float) -> dict[str, Any]:
    lengths = [[*length, bleu, 0.5] for length in LENGTHS]
    error = seed / 10 if decoder == "attention" else None
    return {
        "decoder": decoder,
        "seed": seed,
        "parameters": 7000,
        "by_length": lengths,
        "template": 1.0,
        "alignment error": error,
    }


def test_the_table_shows_mean_and_range() -> None:
    scores = {("attention", 1): 60.0, ("fixed context", 1): 30.0, ("attention", 2): 70.0, ("fixed context", 2): 20.0}
    shown = study.summary_table(pd.DataFrame([row(*run, bleu) for run, bleu in scores.items()]))
    assert list(shown.index[[0, 1, -2, -1]]) == ["parameters", "3–8 words", "new constructions", "alignment error"]
    assert list(shown["attention"].iloc[[0, 1, -1]]) == ["7,000", "65.0 (60.0–70.0)", "0.150 (0.100–0.200)"]
    assert list(shown["fixed context"].iloc[[0, 1, -1]]) == ["7,000", "25.0 (20.0–30.0)", "–"]


def test_gradients_fade_in_recurrent_networks_and_not_with_attention() -> None:
    runtime.seed(0)
    reach = study.gradient_reach(length=12, width=16)
    assert set(reach) == {"RNN", "GRU", "LSTM", "attention"}
    assert all(values[0] == 1 and len(values) == 12 for values in reach.values())
    assert reach["RNN"][8] < reach["LSTM"][8] < reach["attention"][8]


def toy(*pairs: Pair) -> Task:
    return Task.of(toy_corpus(pairs), pairs)


def test_the_average_of_all_states_leaves_out_padding() -> None:
    runtime.seed(0)
    short, long = Pair(("a", "b"), ("x", "y")), Pair(tuple("abcde"), ("x",))
    task = toy(short, long)
    model = task.translator(study.AverageDecoder, width=8).eval()
    alone, beside = (collate(pairs, task.source_vocab, task.target_vocab) for pairs in ([short], [short, long]))
    scores = [model(batch.source, batch.source_lengths, batch.target_in).logits for batch in (alone, beside)]
    torch.testing.assert_close(scores[0][0], scores[1][0, : scores[0].shape[1]])


def test_words_count_as_recalled_wherever_they_stand() -> None:
    pair = Pair(tuple("abcd"), tuple("ABCD"), sure=frozenset((j, j) for j in range(4)))
    shares = study.recall_by_position([pair, pair], [("D", "A"), ("A",)], common={"B"}, bins=4)
    assert shares.nan_to_num(-1).tolist() == [1.0, -1.0, 0.0, 0.5]


def test_unknown_words_are_named_and_the_lesson_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    vocabulary = toy(Pair(("the", "king", "sleeps"), ("x",))).source_vocab
    assert study.known_words("The king sleeps", vocabulary) == ("the", "king", "sleeps")
    assert study.known_words("the kings sleep", vocabulary) == (*study.SENTENCE.lower()[:-1].split(), ".")
    shown = capsys.readouterr().out
    assert "never seen 'kings'. Did you mean king?" in shown
    assert "goes on with: " + study.SENTENCE in shown


def test_candidates_are_the_likeliest_words() -> None:
    vocabulary = toy(Pair(("a",), ("x", "y"))).target_vocab
    scores = torch.zeros(1, len(vocabulary))
    scores[0, vocabulary.encode(["y"])[0]] = 10.0
    [candidates] = study.likeliest(scores, vocabulary)
    assert candidates[0][0] == "y"
    assert candidates[0][1] == pytest.approx(1.0, abs=0.01)


def test_the_brightest_cells_are_compared_with_the_gold_links() -> None:
    links = frozenset({(1, 0), (0, 1)})
    pair = Pair(("red", "door"), ("porte", "rouge"), sure=links, possible=links)
    assert study.alignment_errors([torch.tensor([[0.1, 0.9], [0.8, 0.2]])], [pair]) == (0.0, 1.0)


def test_drawings_fit_and_describe_themselves() -> None:
    weights = torch.softmax(torch.randn(3, 3), dim=-1)
    words, states = ["the", "black", "cat"], torch.randn(3, 2)
    curve = dict.fromkeys(LENGTHS, 50.0)
    pair = Pair(tuple(words), tuple("xyz"), sure=frozenset({(0, 0)}))
    done = {"decoder": "attention", "step": 100, "seconds": 9.0, "bleu": 5.0}
    points = pd.DataFrame([done | {"seed": seed} for seed in (1, 2)])
    pictures = [
        figures.bottleneck(words, ["le", "chat"], 256),
        figures.attention(words, ["le", "chat", "noir"], weights),
        figures.one_step(words, ("le", "chat"), torch.randn(2), states, torch.randn(2)),
        figures.bleu({"attention": curve, "fixed context": curve}, "Quality by length"),
        figures.seeds(pd.DataFrame([row("attention", 1, 60.0), row("attention", 2, 70.0)]), points),
        figures.losses({"attention": [3.0, 2.0], "fixed context": [3.0, 2.5]}),
        figures.alignment(weights, pair, "Where it looks"),
        figures.gradient_curves({"RNN": torch.tensor([1.0, 0.1, 0.0]), "GRU": torch.tensor([1.0, 0.5, 0.2])}),
        figures.recall({"attention": torch.rand(5), "fixed context": torch.rand(5)}),
    ]
    assert all(len(alt.split()) > 10 for _, alt in pictures)


def test_attention_costs_time_and_memory() -> None:
    ratios = study.step_cost(words=4, rows=4, width=8, vocabulary=50, rounds=2)
    assert set(ratios) == set(study.DECODERS) - {"fixed context"}
    assert all(ratio > 0 for ratio in ratios.values())
    short, long = (study.kept_for_backward(seq2seq.LuongDecoder, words=n) for n in (10, 40))
    plain = study.kept_for_backward(seq2seq.FixedContextDecoder, words=40)
    assert long > 4.5 * short, "the scores grow with the square of the length"
    assert plain < long
