"""The measures of tokenizers are what they say, its peers are the library's, its vectors learn from neighbors."""

import math

import matplotlib.pyplot as plt
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tfbook.lessons.tokenizers import figures, study
from tfbook.lessons.tokenizers.study import Neighbors
from tfbook.models.blocks import Config
from tfbook.models.language_model import LanguageModel
from tfbook.text import Tokenizer, WordPiece

TEXT = "the cat sat on the mat and the bat sat on the cat; " * 12
SMALL = Config(d_model=8, heads=2, d_ff=8, layers=1)

# ---- bits per byte -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vocab", [256, 270])
def test_a_model_that_knows_nothing_needs_the_bits_of_a_token_for_its_bytes(vocab: int) -> None:
    tokenizer = Tokenizer.learn([TEXT], vocab)
    model = LanguageModel(len(tokenizer), SMALL).eval()
    with torch.no_grad():
        model.unembed.weight.zero_()
    ids = tokenizer.encode(TEXT)
    found = study.bits_per_byte(model, TEXT, tokenizer)
    assert math.isclose(found, math.log2(vocab) * len(ids) / len(TEXT), rel_tol=0.02)  # 0.02: the ends are not judged
    assert vocab > 256 or math.isclose(found, 8, rel_tol=1e-5)


def test_each_token_is_judged_once_with_half_a_window_before_it() -> None:
    tokenizer = Tokenizer.learn([TEXT], 256)
    model = LanguageModel(256, SMALL).eval()
    ids, half = torch.tensor(tokenizer.encode(TEXT)), study.WINDOW // 2
    last = half + 1 + (len(ids) - half - 1) // half * half
    bits = 0.0
    with torch.no_grad():
        for place in range(half + 1, last):
            start = (place - half - 1) // half * half  # the window in whose second half the token stands
            logits = model(ids[None, start:place])[0, -1]
            bits += float(F.cross_entropy(logits, ids[place])) / math.log(2)
    assert math.isclose(study.bits_per_byte(model, TEXT, tokenizer), bits / (last - half - 1), rel_tol=1e-4)


def test_a_text_without_a_whole_window_is_refused() -> None:
    tokenizer = Tokenizer.learn([TEXT], 256)
    with pytest.raises(ValueError, match="text has 8 tokens; expected more than 128"):
        study.bits_per_byte(LanguageModel(256, SMALL), "too tiny", tokenizer)


def test_each_vocabulary_has_its_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "VOCABULARIES", (256, 264))
    monkeypatch.setattr(study, "SIZES", SMALL)
    monkeypatch.setattr(study, "JUDGED", 2000)
    rows = study.vocabularies(seeds=(1,), steps=2)
    assert [row["vocab"] for row in rows] == [256, 264]
    assert rows[0]["parameters"] == rows[1]["parameters"] - 8 * SMALL.d_model
    assert rows[0]["bytes a token"] == 1 < rows[1]["bytes a token"]
    assert all(0 < point["bits"] < 10 and point["step"] == 2 for row in rows for point in row["curve"])


def _row(vocab: int, parameters: int, length: float, bits: tuple[float, float]) -> dict[str, object]:
    curve = [{"step": 100 * i, "seconds": 1.0, "bits": b} for i, b in enumerate(bits, start=1)]
    return {"vocab": vocab, "seed": 1, "parameters": parameters, "bytes a token": length, "curve": curve}


ROWS = [_row(256, 1000, 1.0, (4.0, 3.0)), _row(512, 1500, 2.0, (3.5, 2.5))]


@pytest.mark.parametrize(
    ("what", "expected"),
    [("tokens", (3.0, 2.5)), ("bytes", (3.0, 3.5)), ("operations", (3.0, 3.5 - 1 / 3))],  # 200, 100 and 133⅓ steps
)
def test_what_is_equal_ends_where_the_shortest_run_ends(what: str, expected: tuple[float, float]) -> None:
    found = study.at_equal(ROWS, what)
    assert list(found) == [256, 512]
    assert [bits for (bits,) in found.values()] == pytest.approx(expected)


def test_a_run_is_counted_in_tokens_bytes_or_operations() -> None:
    step = study.BATCH * study.WINDOW
    assert study.learning_curve(ROWS[1], "tokens") == ([100 * step, 200 * step], [3.5, 2.5])
    assert study.learning_curve(ROWS[1], "bytes")[0] == [200.0 * step, 400.0 * step]
    assert study.learning_curve(ROWS[1], "operations")[0] == [900_000 * step, 1_800_000 * step]
    with pytest.raises(ValueError, match="what is 'steps'; expected one of 'tokens', 'bytes', 'operations'"):
        study.at_equal(ROWS, "steps")


# ---- peers -------------------------------------------------------------------------------------------------------


def test_the_library_learns_what_the_package_does() -> None:
    library, ours = study.learned_by_library(TEXT, 270), Tokenizer.learn([TEXT], 270)
    assert library.encode(TEXT).ids == ours.encode(TEXT)


def test_wordpiece_by_count_merges_the_most_frequent_pair() -> None:
    found = study.wordpiece_by_count("no no no on; nob", 9)
    assert found.pieces[0] == WordPiece.UNK
    assert "no" in found.pieces
    assert len(found.pieces) == 9
    assert [found.pieces[i] for i in found.encode("no nob zo")] == ["no", "no", "##b", "[UNK]"]


# ---- pictures ----------------------------------------------------------------------------------------------------

WORDS = {tuple("ring"): 2, tuple("king"): 1}
AFTER = {("r", "in", "g"): 2, ("k", "in", "g"): 1}
BITS = {"tokens": {256: [2.7, 2.6], 512: [2.5, 2.4]}, "bytes": {256: [2.7, 2.6], 512: [2.6, 2.5]}}
PICTURES = {
    "job": lambda: figures.draw_job("a ring", ["a", " r", "ing"], [64, 258, 257], torch.ones(3, 4), 300),
    "cuts": lambda: figures.draw_cuts({"words": ["a", "<unk>"], "bytes": ["a", "\n", "ff"]}, "Cut"),
    "merging": lambda: figures.draw_merging(WORDS, [(("i", "n"), 3, AFTER)]),
    "training": lambda: figures.draw_training(WORDS, {("i", "n"): 3, ("n", "g"): 3}, [("i", "n")]),
    "languages": lambda: figures.draw_languages({"English": 10, "Greek": 70}, {"English": 11, "Greek": 70}, "French"),
    "counters": lambda: figures.draw_counters("r", {"seen": [(["err"], [2.0])], "new": [(["ra", "t"], [0.0, 0.1])]}),
    "sizes": lambda: figures.draw_sizes({256: 1.0, 512: 1.7}, BITS),
    "map": lambda: figures.draw_map(torch.eye(4), [*"abcd"], {"a": "food", "b": "food", "c": "place", "d": "place"}),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_says_what_it_shows(name: str) -> None:
    figure, alt = PICTURES[name]()
    figure.canvas.draw()
    plt.close("all")
    assert alt.endswith(".")
    assert "nan" not in alt


def test_the_merging_says_each_stage() -> None:
    _, alt = figures.draw_merging(WORDS, [(("i", "n"), 3, AFTER)])
    plt.close("all")
    assert alt.endswith("letters: r i n g, k i n g; merge 1: i + n, 3 times: r in g, k in g.")


def test_the_counters_say_what_each_word_gets() -> None:
    _, alt = figures.draw_counters("r", {"seen\ntokens": [(["er", "ror"], [1.0, 2.0])]})
    plt.close("all")
    assert alt.endswith("add up to: er|ror 3.0 (seen tokens).")


# ---- letter counters ---------------------------------------------------------------------------------------------


def test_words_are_divided_once_and_for_all_into_those_to_learn_from_and_new_ones() -> None:
    words = [f"word{i}" for i in range(70)]
    seen, new = study.divided(words)
    assert (len(seen), len(new)) == (60, 10)
    assert sorted(seen + new) == sorted(words)
    assert new + seen != words
    assert (seen, new) == study.divided(words)
    assert [len(part) for part in study.divided(words, most=21)] == [18, 3]


def test_the_worth_of_a_word_is_that_of_its_tokens_after_a_space() -> None:
    tokenizer = Tokenizer.learn([TEXT], 270)
    values = torch.arange(270.0)
    found = study.worth(["sat", "mat", "cats", "that-is-long"], "m", tokenizer, values)
    ids = tokenizer.encode(" mat")
    assert found == [([tokenizer.decode([i]).strip() for i in ids], [float(i) for i in ids])]
    assert "".join(found[0][0]) == "mat"
    assert len(study.worth(["at", "sat", "mat"], "a", tokenizer, values, count=2)) == 2


# ---- vectors from neighbors -------------------------------------------------------------------------------------

SENTENCES = [
    line.split() for line in ("a cat eats meat", "a dog eats meat", "one car burns oil", "one bus burns oil")
] * 9


def test_pairs_are_neighbors_within_a_sentence_both_ways_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Neighbors, "RARE", 1.0)  # all words are rare: no pair is left out
    neighbors = Neighbors([["a", "b", "c"], ["d", "a"]], window=1, size=4, negatives=2, seed=1)
    pairs = sorted("".join(neighbors.words[i] for i in pair) for pair in neighbors.pairs.tolist())
    assert pairs == ["ab", "ad", "ba", "bc", "cb", "da"]
    further = Neighbors([["a", "b", "c"], ["d", "a"]], window=2, size=4, negatives=2, seed=1)
    assert len(further.pairs) == len(pairs) + 2


def test_a_batch_is_a_word_its_neighbor_and_what_was_drawn_the_same_at_every_asking() -> None:
    neighbors = Neighbors(SENTENCES, size=6, negatives=3, seed=2)
    batch = neighbors(5)
    assert batch.shape == (6, 5)
    assert {tuple(row) for row in batch[:, :2].tolist()} <= {tuple(pair) for pair in neighbors.pairs.tolist()}
    assert torch.equal(batch, neighbors(5))
    assert not torch.equal(batch, neighbors(6))


def test_pairs_of_frequent_words_are_left_out_more_often() -> None:
    often = [["the", "the"]] * 400 + [[f"rare{i}", "word"] for i in range(400)]
    neighbors = Neighbors(often, window=1, seed=3)
    words = Neighbors.RARE / torch.tensor([0.5, 0.25, 1 / 1600])  # of "the", "word", "rare…"
    the, word, rare = (float(share.sqrt().clamp(max=1)) for share in words)
    kept = [[neighbors.words[i] for i in pair] for pair in neighbors.pairs.tolist()]
    assert rare == 1.0
    assert kept.count(["the", "the"]) <= 10  # 800 · the² = 1.6 are expected
    assert abs(len(kept) - kept.count(["the", "the"]) - 800 * word) < 40
    assert the < word


def test_words_with_the_same_neighbors_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the loss of the lesson: the true neighbor against words drawn at random."""
    monkeypatch.setattr(Neighbors, "RARE", 1.0)
    torch.manual_seed(0)
    neighbors = Neighbors(SENTENCES, window=2, size=64, seed=1)
    u, v = (nn.Embedding(len(neighbors.words), 8) for _ in range(2))
    nn.init.normal_(u.weight, std=0.1)
    nn.init.zeros_(v.weight)
    optimizer = torch.optim.Adam([u.weight, v.weight], lr=3e-2)
    signs = torch.tensor([1.0, *[-1.0] * neighbors.negatives])
    for step in range(150):
        batch = neighbors(step)
        scores = (v(batch[:, 1:]) @ u(batch[:, 0])[..., None])[..., 0]
        optimizer.zero_grad()
        (-F.logsigmoid(signs * scores).sum(dim=-1).mean()).backward()
        optimizer.step()
    vectors = u.weight.detach()
    assert study.nearest(vectors, neighbors.words, "cat", 1) == ["dog"]
    assert study.nearest(vectors, neighbors.words, "bus", 1) == ["car"]


def test_the_nearest_have_the_smallest_angles() -> None:
    vectors = torch.tensor([[1.0, 0.0], [9.0, 1.0], [0.0, 1.0], [-1.0, 0.0]])
    assert study.nearest(vectors, ["a", "b", "c", "d"], "a", 3) == ["b", "c", "d"]
    with pytest.raises(ValueError, match="word is 'e', which is none of the 4 words"):
        study.nearest(vectors, ["a", "b", "c", "d"], "e")
