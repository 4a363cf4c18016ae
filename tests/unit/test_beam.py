"""Beam search against one written with Python's lists, against all texts of a toy language, and against Hugging Face.

The naive search never stops early and keeps no cache, so that agreement also says that stopping costs nothing.
"""

import itertools
import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from transformers import BartConfig, BartForConditionalGeneration

from tfbook.attention import POSITIONS
from tfbook.generation.search import (
    NEVER_GENERATED,
    VASWANI_PENALTY,
    Beams,
    BeamStep,
    CachedDecoder,
    IncrementalDecoder,
    Penalty,
    UncachedDecoder,
    beam_search,
    gnmt_penalty,
    greedy_search,
    mean_penalty,
)
from tfbook.models.blocks import Config
from tfbook.models.outputs import Decoded
from tfbook.models.seq2seq import BahdanauDecoder, RecurrentEncoder as Reader, Seq2SeqConfig, Translator
from tfbook.models.transformer import Decoder, Encoder, Transformer
from tfbook.text import BOS, EOS, PAD

Model = Translator | Transformer
Text = tuple[tuple[int, ...], float]  # words and score

LONGEST = 6
SOURCE, LENGTHS = torch.tensor([[4, 6, 5, 7, EOS], [9, EOS, 0, 0, 0], [8, 4, EOS, 0, 0]]), torch.tensor([5, 2, 3])
SEARCHES: list[tuple[int, Penalty]] = [
    (1, gnmt_penalty(0)),
    (2, VASWANI_PENALTY),
    (3, mean_penalty(1.0)),
    (4, mean_penalty(2.0)),
]
every_search = pytest.mark.parametrize(("width", "penalty"), SEARCHES, ids=["1, none", "2, GNMT", "3, mean", "4, long"])


@torch.no_grad()
def _next(model: Model, source: Tensor, texts: list[tuple[int, ...]]) -> list[dict[int, float]]:
    """log p(word | text, source) of every word that may be said after each of the texts."""
    words, lengths = torch.tensor([(BOS, *text) for text in texts]), torch.tensor([len(source)] * len(texts))
    logp = model(source.expand(len(texts), -1), lengths, words).logits[:, -1].log_softmax(dim=-1)
    return [{word: p for word, p in enumerate(row) if word not in NEVER_GENERATED} for row in logp.tolist()]


def _naive(model: Model, source: Tensor, width: int, penalty: Penalty, longest: int = LONGEST) -> list[Text]:
    """The `width` best finished texts of one sentence, best first."""
    live, found = [((), 0.0)], []
    for length in range(1, longest + 1):
        said = _next(model, source, [text for text, _ in live])
        grown = [
            ((*text, w), total + p) for (text, total), logp in zip(live, said, strict=True) for w, p in logp.items()
        ]
        grown.sort(key=lambda text: -text[1])
        found += [(text, total / penalty(length)) for text, total in grown[:width] if text[-1] == EOS]
        live = [text for text in grown if text[0][-1] != EOS][:width]
    found += [(text, total / penalty(longest)) for text, total in live]
    return sorted(found, key=lambda text: -text[1])[:width]


def _row(beams: Beams, row: int) -> list[Text]:
    """The texts of one source without their padding, which must come after the end alone."""
    texts = []
    for words, score in zip(beams.tokens[row].tolist(), beams.scores[row].tolist(), strict=True):
        size = words.index(EOS) + 1 if EOS in words else len(words)
        assert not any(words[size:])
        texts.append((tuple(words[:size]), score))
    return texts


def _assert_equal(found: list[Text], expected: list[Text]) -> None:
    assert [text for text, _ in found] == [text for text, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-5)


# ---- against a search with lists ---------------------------------------------------------------------------------


def test_each_source_gets_the_texts_of_the_naive_search(speaker: Model) -> None:
    """For every decoder and encoding of positions, a ragged batch, several widths and penalties."""
    texts = set()
    for width, penalty in SEARCHES:
        found = beam_search(speaker, SOURCE, LENGTHS, width=width, max_length=LONGEST, penalty=penalty)
        assert found.tokens.shape == (len(SOURCE), width, LONGEST)
        for row, length in enumerate(LENGTHS.tolist()):
            expected = _naive(speaker, SOURCE[row, :length], width, penalty)
            _assert_equal(_row(found, row), expected)
            texts |= {text for text, _ in expected}
    assert len(texts) > 8, "the texts should differ, or the test says little"


@every_search
def test_with_a_cache_the_beams_are_those_without(speaker: Model, width: int, penalty: Penalty) -> None:
    """Every step of the search: parents, words, log-probabilities; and what comes out."""
    steps: dict[type[IncrementalDecoder], list[BeamStep]] = {CachedDecoder: [], UncachedDecoder: []}
    found, expected = (
        beam_search(
            speaker,
            SOURCE,
            LENGTHS,
            width=width,
            max_length=LONGEST,
            penalty=penalty,
            decoder=kind,
            on_step=seen.append,
        )
        for kind, seen in steps.items()
    )
    assert torch.equal(found.tokens, expected.tokens)
    torch.testing.assert_close(found.scores, expected.scores, atol=1e-5, rtol=0)
    for one, other in zip(*steps.values(), strict=True):
        reached = one.scores.isfinite()
        assert torch.equal(one.words[reached], other.words[reached])
        assert torch.equal(one.parents[reached], other.parents[reached])
        torch.testing.assert_close(one.scores, other.scores, atol=1e-5, rtol=0)


def test_a_beam_of_one_is_greedy(speaker: Model) -> None:
    """Without a penalty, which would let it go on behind the first `<eos>` in search of a longer text."""
    said = greedy_search(speaker, SOURCE, LENGTHS, max_length=LONGEST).tokens
    found = beam_search(speaker, SOURCE, LENGTHS, width=1, max_length=LONGEST, penalty=gnmt_penalty(0))
    assert torch.equal(found.tokens[:, 0, : said.shape[1]], said)
    assert not found.tokens[:, 0, said.shape[1] :].any()
    longer = beam_search(speaker, SOURCE, LENGTHS, width=1, max_length=LONGEST, penalty=mean_penalty(1.0))
    config = (said != PAD).sum(dim=1)
    assert (longer.scores[:, 0] >= found.scores[:, 0] / config - 1e-6).all()


# ---- against all texts of a toy language -------------------------------------------------------------------------

TOY = len(NEVER_GENERATED) + 1 + 2  # words: `<eos>` and two more may be said


def _toys() -> dict[str, Model]:
    """Models whose every word has a fair chance."""
    torch.manual_seed(1)
    config = Config(d_model=8, heads=2, d_ff=8, layers=1, position=POSITIONS["rotary"])
    recurrent = Seq2SeqConfig(source_vocab=TOY, target_vocab=TOY, d_embed=4, d_hidden=4)
    models = {
        "Transformer": Transformer(Encoder(TOY, config), Decoder(TOY, config, tied=False)),
        "Bahdanau": Translator(Reader(recurrent), BahdanauDecoder(recurrent)),
    }
    for parameter in itertools.chain(*(model.parameters() for model in models.values())):
        nn.init.normal_(parameter, std=0.5)
    return {name: model.double().eval() for name, model in models.items()}


@torch.no_grad()
def _every_text(model: Model, source: Tensor, penalty: Penalty, longest: int) -> list[Text]:
    """All texts of up to `longest` words, scored by one forward pass of the model over all of them, best first."""
    words = [word for word in range(TOY) if word not in (*NEVER_GENERATED, EOS)]
    texts = [(*text, EOS) for size in range(longest) for text in itertools.product(words, repeat=size)]
    texts += itertools.product(words, repeat=longest)  # cut off
    target = torch.tensor([(BOS, *text, *[PAD] * (longest - len(text))) for text in texts])
    lengths = torch.tensor([len(source)] * len(texts))
    logp = model(source.expand(len(texts), -1), lengths, target[:, :-1]).logits.log_softmax(dim=-1)
    said = logp.gather(2, target[:, 1:, None])[:, :, 0].masked_fill(target[:, 1:] == PAD, 0.0).sum(dim=1)
    scored = [(text, total / penalty(len(text))) for text, total in zip(texts, said.tolist(), strict=True)]
    return sorted(scored, key=lambda text: -text[1])


@pytest.mark.parametrize("kind", ["Transformer", "Bahdanau"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 3.0])
@pytest.mark.parametrize("penalty", [gnmt_penalty, mean_penalty], ids=["GNMT", "mean"])
def test_a_wide_enough_beam_is_exhaustive(kind: str, alpha: float, penalty: Callable[[float], Penalty]) -> None:
    """All 31 texts of up to four words in the right order; a narrow beam finds none better than the best of them."""
    model, source, longest = _toys()[kind], torch.tensor([[5, 4, EOS], [4, EOS, 0]]), 4
    found = beam_search(model, source, torch.tensor([3, 2]), width=31, max_length=longest, penalty=penalty(alpha))
    down = beam_search(model, source, torch.tensor([3, 2]), width=2, max_length=longest, penalty=penalty(alpha))
    for row, length in enumerate((3, 2)):
        expected = _every_text(model, source[row, :length], penalty(alpha), longest)
        assert len(expected) == 31
        _assert_equal(_row(found, row), expected)
        assert dict(_row(down, row)).keys() <= dict(expected).keys()
        assert down.scores[row, 0] <= found.scores[row, 0] + 1e-6


def test_penalties_change_which_text_is_best() -> None:
    """Without one, the shortest; with a strong one, the longest. Or the tests above would say little about them."""
    model, source = _toys()["Transformer"], torch.tensor([[5, 4, EOS]])
    config = [
        len(
            _row(beam_search(model, source, torch.tensor([3]), width=31, max_length=4, penalty=mean_penalty(alpha)), 0)[
                0
            ][0]
        )
        for alpha in (0.0, 3.0)
    ]
    assert config == [1, 4]


def test_where_there_are_fewer_texts_than_beams_the_rest_have_score_minus_infinity() -> None:
    """Three texts of one word, eight beams."""
    found = beam_search(_toys()["Transformer"], torch.tensor([[5, EOS]]), torch.tensor([2]), width=8, max_length=1)
    assert found.scores[0].isfinite().tolist() == [True] * 3 + [False] * 5
    assert sorted(found.tokens[0, :3, 0].tolist()) == [EOS, 4, 5]
    assert not found.scores.isnan().any()
    assert not found.tokens[0, 3:].any(), "what was never said holds padding alone"


class Bigrams:
    """Steps of a language in which only the last word matters: `<eos>` at once, or 4, 5, `<eos>`."""

    def __init__(self, *ignored: object):
        self.chances = torch.full((TOY, TOY), 1e-9)
        for word, after in {BOS: {EOS: 0.5, 4: 0.4, 5: 0.1}, 4: {5: 0.98, EOS: 0.02}, 5: {EOS: 0.98, 5: 0.02}}.items():
            self.chances[word, list(after)] = torch.tensor(list(after.values()))

    def __call__(self, words: Tensor) -> Tensor:
        """The same for every source."""
        return self.chances[words[:, -1]].log()

    def select(self, rows: Tensor) -> None:
        """Nothing is remembered."""


def test_a_longer_text_may_still_win_after_a_short_one_has_ended() -> None:
    """(log 0.4 + 2 log 0.98) / 3 > log 0.5: the search goes on as long as the longest text could win."""
    search = partial(
        beam_search, _toys()["Transformer"], torch.tensor([[5, EOS]]), torch.tensor([2]), width=1, decoder=Bigrams
    )
    found = search(max_length=6, penalty=mean_penalty(1.0))
    _assert_equal(_row(found, 0), [((4, 5, EOS), (math.log(0.4) + 2 * math.log(0.98)) / 3)])
    _assert_equal(_row(search(max_length=6, penalty=mean_penalty(0.0)), 0), [((EOS,), math.log(0.5))])
    _assert_equal(_row(search(max_length=1, penalty=mean_penalty(1.0)), 0), [((EOS,), math.log(0.5))])


class Detour(Bigrams):
    """Ends early with little probability, and after three words with nearly all of it."""

    def __init__(self, *ignored: object):
        self.chances = torch.full((TOY, TOY), 1e-9)
        following = {BOS: {4: 0.97, EOS: 0.018, 5: 0.012}, 4: {5: 0.9, EOS: 0.08, 4: 0.02}, 5: {EOS: 0.98, 5: 0.02}}
        for word, after in following.items():
            self.chances[word, list(after)] = torch.tensor(list(after.values()))


def test_a_penalty_may_fall_with_the_length() -> None:
    """Then the next word bounds what can be reached, not the longest text (transformers issue 20901)."""

    def penalty(length: int) -> float:
        return 1 / length

    logp, every = Detour().chances.log().log_softmax(dim=-1), []
    for length in range(5):
        for words in itertools.product((4, 5), repeat=length):
            text = (BOS, *words, EOS)
            every.append((text[1:], sum(float(logp[pair]) for pair in itertools.pairwise(text)) / penalty(length + 1)))
    source, lengths = torch.tensor([[5, EOS]]), torch.tensor([2])
    found = beam_search(
        _toys()["Transformer"], source, lengths, width=2, max_length=50, penalty=penalty, decoder=Detour
    )
    _assert_equal(_row(found, 0), sorted(every, key=lambda text: -text[1])[:2])


# ---- against Hugging Face ----------------------------------------------------------------------------------------


class Bart(Transformer):
    """Hugging Face's BART with random weights in the place of our encoder and decoder."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        half = {"layers": 1, "attention_heads": 2, "ffn_dim": 16}
        config = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in half.items()}
        ids = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS, "decoder_start_token_id": BOS}
        config = BartConfig(
            vocab_size=12, d_model=16, max_position_embeddings=16, forced_eos_token_id=None, **config, **ids
        )
        self.bart = BartForConditionalGeneration(config)
        for parameter in self.bart.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.4)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Decoded:
        """Without a cache."""
        mask = torch.arange(source.shape[1]) < lengths[:, None]
        return Decoded(self.bart(source, mask, decoder_input_ids=target).logits, None, None)

    def generate(self, width: int, alpha: float, early_stopping: bool | str) -> list[list[Text]]:
        """The texts of each source by Hugging Face's own search, best first."""
        said = self.bart.generate(
            SOURCE,
            attention_mask=torch.arange(SOURCE.shape[1]) < LENGTHS[:, None],
            num_beams=width,
            num_return_sequences=width,
            length_penalty=alpha,
            early_stopping=early_stopping,
            max_length=LONGEST + 1,  # the first word, `<bos>`, counts there
            suppress_tokens=NEVER_GENERATED,
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
        )
        words = said.sequences[:, 1:].tolist()
        texts = [tuple(text[: text.index(EOS) + 1]) if EOS in text else tuple(text) for text in words]
        scored = list(zip(texts, said.sequences_scores.tolist(), strict=True))
        return [scored[row * width : (row + 1) * width] for row in range(len(SOURCE))]


@pytest.fixture(params=range(3))
def bart(request: pytest.FixtureRequest) -> Bart:
    torch.manual_seed(request.param)
    return Bart().eval()


def _ours(model: Bart, width: int, alpha: float) -> list[list[Text]]:
    penalty = mean_penalty(alpha)
    found = beam_search(
        model, SOURCE, LENGTHS, width=width, max_length=LONGEST, penalty=penalty, decoder=UncachedDecoder
    )
    return [_row(found, row) for row in range(len(SOURCE))]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("width", [2, 4])
def test_the_texts_are_those_of_hugging_face(bart: Bart, width: int, alpha: float) -> None:
    """Its `length_penalty` is our `mean_penalty`, its `early_stopping="never"` our rule for when to stop."""
    for found, expected in zip(_ours(bart, width, alpha), bart.generate(width, alpha, "never"), strict=True):
        _assert_equal(found, expected)


@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.0])
def test_hugging_face_by_default_stops_before_a_longer_text_could_win(bart: Bart, alpha: float) -> None:
    """`early_stopping=False` compares as if unfinished texts were to end now (its documentation calls it a heuristic).

    What it finds is never better; without a penalty, where length does not matter, the two rules are one.
    """
    for found, expected in zip(_ours(bart, 2, alpha), bart.generate(2, alpha, False), strict=True):
        if alpha == 0:
            _assert_equal(found, expected)
        assert found[0][1] >= expected[0][1] - 1e-5


def test_these_models_end_some_of_their_texts_and_not_others() -> None:
    """Or the comparison would say little about the rules for ended texts."""
    config = set()
    for seed in range(3):
        torch.manual_seed(seed)
        config |= {len(text) if text[-1] == EOS else None for text, _ in itertools.chain(*_ours(Bart().eval(), 4, 0.6))}
    assert None in config
    assert len(config) > 3


# ---- what a search does ------------------------------------------------------------------------------------------


@every_search
def test_what_is_seen_are_the_steps_of_the_search(translator: Translator, width: int, penalty: Penalty) -> None:
    """From parents and words alone the texts can be told again, with their scores: a plot draws its tree from them."""
    steps: list[BeamStep] = []
    found = beam_search(
        translator, SOURCE, LENGTHS, width=width, max_length=LONGEST, penalty=penalty, on_step=steps.append
    )
    for row in range(len(SOURCE)):
        live, ended = [()] * width, {}
        for length, step in enumerate(steps, start=1):
            scores = step.scores[row].tolist()
            grown = [
                (*live[parent], word) for parent, word in zip(step.parents[row], step.words[row].tolist(), strict=True)
            ]
            assert scores == sorted(scores, reverse=True)
            assert step.kept[row].sum() == width
            assert not (step.kept & step.ended)[row].any()
            ended |= {grown[i]: scores[i] / penalty(length) for i in step.ended[row].nonzero().flatten().tolist()}
            live = [grown[i] for i in step.kept[row].nonzero().flatten().tolist()]
            last = step.scores[row][step.kept[row]].tolist()
        cut = {text: score / penalty(LONGEST) for text, score in zip(live, last, strict=True)}
        told = ended | (cut if len(steps) == LONGEST else {})
        assert all(told[text] == pytest.approx(score, abs=1e-6) for text, score in _row(found, row))


def test_the_search_stops_when_nothing_can_win_any_more(translator: Translator) -> None:
    """Where every sentence ends at once, after one step for one beam; two beams need a second text each."""
    with torch.no_grad():
        translator.decoder.unembed.bias[EOS] = 1e4
    for width, count in ((1, 1), (2, 2)):
        steps: list[BeamStep] = []
        found = beam_search(
            translator, SOURCE, LENGTHS, width=width, max_length=50, penalty=gnmt_penalty(0), on_step=steps.append
        )
        assert len(steps) == count
        assert found.tokens.shape == (3, width, 50)
        assert found.tokens[:, 0].tolist() == [[EOS] + [PAD] * 49] * 3


@pytest.mark.parametrize("training", [True, False])
def test_the_search_runs_in_eval_mode_and_restores_the_mode(speaker: Model, training: bool) -> None:
    """Dropout must not act; and an error leaves the mode as it came, too."""
    expected = beam_search(speaker, SOURCE, LENGTHS, width=2, max_length=3)
    speaker.train(training)
    found = beam_search(speaker, SOURCE, LENGTHS, width=2, max_length=3)
    assert torch.equal(found.tokens, expected.tokens)
    assert torch.equal(found.scores, expected.scores)
    assert {module.training for module in speaker.modules()} == {training}
    with pytest.raises(ValueError, match="lengths"):
        beam_search(speaker, SOURCE, LENGTHS + 9)
    assert {module.training for module in speaker.modules()} == {training}


def test_a_penalty_that_is_nan_is_refused(speaker: Model) -> None:
    """With NaN nothing can be compared: each text would count as the best."""
    with pytest.raises(ValueError, match=r"penalty\(2\) is NaN; expected a number to divide log-probabilities by"):
        beam_search(speaker, SOURCE, LENGTHS, max_length=4, penalty=lambda length: math.nan if length == 2 else 1.0)
    for make in (gnmt_penalty, mean_penalty):
        with pytest.raises(ValueError, match="alpha is nan; expected 0 or more"):
            make(math.nan)


def test_the_penalties_are_their_formulas() -> None:
    """GNMT's starts at 1 for one word; α = 0 changes nothing; Vaswani et al. took 0.6."""
    for length in (1, 2, 7, 50):
        assert gnmt_penalty(0.8)(length) == pytest.approx(math.pow(5 + length, 0.8) / math.pow(6, 0.8))
        assert mean_penalty(1.5)(length) == pytest.approx(math.exp(1.5 * math.log(length)))
        assert mean_penalty()(length) == length
        assert gnmt_penalty(0)(length) == mean_penalty(0)(length) == 1
        assert VASWANI_PENALTY(length) == gnmt_penalty()(length) == gnmt_penalty(0.6)(length)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda search: search(width=0), "width is 0; expected 1 or more beams"),
        (lambda search: search(max_length=0), "max_length is 0; expected 1 or more"),
        (lambda search: gnmt_penalty(-0.1), "alpha is -0.1; expected 0 or more"),
        (lambda search: mean_penalty(-1), "alpha is -1; expected 0 or more"),
    ],
    ids=["width", "max_length", "GNMT", "mean"],
)
def test_impossible_searches_are_refused(call: Callable[..., object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(partial(beam_search, _toys()["Transformer"], torch.tensor([[5, EOS]]), torch.tensor([2])))
