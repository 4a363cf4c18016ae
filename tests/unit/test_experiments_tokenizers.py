"""The measures of tokenizers are what they say, and its vectors learn from neighbors, on small sizes."""

import math

import pytest
import torch
from torch.nn import functional as F

from tfbook import training
from tfbook.course.experiments import tokenizers as study
from tfbook.course.experiments.tokenizers import Neighbors, SkipGram
from tfbook.models.blocks import Config
from tfbook.models.language_model import LanguageModel
from tfbook.text import Tokenizer

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


# ---- vectors from neighbors -------------------------------------------------------------------------------------

SENTENCES = [
    line.split() for line in ("a cat eats meat", "a dog eats meat", "one car burns oil", "one bus burns oil")
] * 9


def test_a_logit_is_the_product_of_a_word_and_its_neighbor() -> None:
    model = SkipGram(5, 3)
    torch.nn.init.normal_(model.neighbor.weight)
    logits = model(torch.tensor([4, 0]), torch.tensor([[1, 2], [3, 3]]))
    expected = [
        [float(model.word.weight[w].detach() @ model.neighbor.weight[n].detach()) for n in row]
        for w, row in ((4, (1, 2)), (0, (3, 3)))
    ]
    torch.testing.assert_close(logits.detach(), torch.tensor(expected))


def test_the_loss_rewards_the_neighbor_and_punishes_what_was_drawn() -> None:
    model = SkipGram(4, 2)
    with torch.no_grad():
        model.word.weight.copy_(torch.tensor([[1.0, 0.0]] * 4))
        model.neighbor.weight.copy_(torch.tensor([[0.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [3.0, 0.0]]))
    expected = sum(math.log1p(math.exp(-x)) for x in (2.0, 1.0, -3.0))  # neighbor 1; drawn: 2 and 3
    assert math.isclose(study.neighbor_loss(model, torch.tensor([[0, 1, 2, 3]])).item(), expected, rel_tol=1e-6)
    assert math.isclose(
        study.neighbor_loss(SkipGram(4, 2), torch.tensor([[0, 1, 2, 3]])).item(), 3 * math.log(2), rel_tol=1e-6
    )


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
    monkeypatch.setattr(Neighbors, "RARE", 1.0)
    neighbors = Neighbors(SENTENCES, window=2, size=64, seed=1)
    model = SkipGram(len(neighbors.words), 8)
    training.fit(model, study.neighbor_loss, neighbors, training.Recipe(steps=150, lr=3e-2, mixed_precision=False))
    vectors = model.word.weight.detach()
    assert study.nearest(vectors, neighbors.words, "cat", 1) == ["dog"]
    assert study.nearest(vectors, neighbors.words, "bus", 1) == ["car"]


def test_the_nearest_have_the_smallest_angles() -> None:
    vectors = torch.tensor([[1.0, 0.0], [9.0, 1.0], [0.0, 1.0], [-1.0, 0.0]])
    assert study.nearest(vectors, ["a", "b", "c", "d"], "a", 3) == ["b", "c", "d"]
    with pytest.raises(ValueError, match="word is 'e', which is none of the 4 words"):
        study.nearest(vectors, ["a", "b", "c", "d"], "e")
