"""Study of lesson 07: vocabulary size against a language model's loss, other tokenizers, letter counts, and vectors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from tfbook import data, runtime, training
from tfbook.attention.positions import POSITIONS
from tfbook.course.cost import parameters
from tfbook.course.experiments import experiment
from tfbook.data.text import Text
from tfbook.lessons.tokenizers.answers import answer as answer
from tfbook.lessons.tokenizers.claims import CLAIMS as CLAIMS
from tfbook.models.blocks import Config
from tfbook.models.language_model import LanguageModel
from tfbook.text.tokenizer import Tokenizer
from tfbook.text.windows import Windows
from tfbook.text.wordpiece import WORD, WordPiece
from tfbook.training.losses import next_token_loss

if TYPE_CHECKING:
    import tokenizers


ARTICLE = {  # Universal Declaration of Human Rights, article 1, first sentence
    "English": "All human beings are born free and equal in dignity and rights.",
    "French": "Tous les êtres humains naissent libres et égaux en dignité et en droits.",
    "Turkish": "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar.",
    "Greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "Russian": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "Japanese": "すべての人間は、生れながらにして自由であり、かつ、尊厳と権利とについて平等である。",
}

# ---- live: the library in Rust, WordPiece by count -------------------------------------------------------------------


def learned_by_library(text: str, vocab: int) -> tokenizers.Tokenizer:
    """The tokenizer that the library `tokenizers` trains on a text, with GPT-2's splitting and initially all bytes."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator([text], trainer)
    return library


def wordpiece_by_count(text: str, vocab: int) -> WordPiece:
    """WordPiece with the library trainer's pieces: it merges the most frequent pair, as BPE does."""
    import tokenizers
    from tokenizers import Regex, models, pre_tokenizers, trainers

    library = tokenizers.Tokenizer(models.WordPiece(unk_token=WordPiece.UNK))
    library.pre_tokenizer = pre_tokenizers.Split(Regex(WORD), "removed", invert=True)
    trainer = trainers.WordPieceTrainer(vocab_size=vocab, special_tokens=[WordPiece.UNK], show_progress=False)
    library.train_from_iterator([text], trainer)
    return WordPiece(sorted(library.get_vocab(), key=library.get_vocab().__getitem__))


# ---- stored: vocabulary against the loss of a language model ---------------------------------------------------------

VOCABULARIES = (256, 512, 1024, 2048, 4096)
SIZES = Config(d_model=64, heads=4, d_ff=256, layers=2, position=POSITIONS["rotary"])
WINDOW = 128  # tokens of context
BATCH = 16
JUDGED = 2**15  # characters of validation text


@torch.inference_mode()
def bits_per_byte(model: LanguageModel, text: str, tokenizer: Tokenizer) -> float:
    """−log₂ p of the tokens of `text` ÷ the number of their bytes, each given at least half a window of context.

    Windows overlap by half, and only the second half of each is scored. Raises ValueError if the text does not fill a
    window.
    """
    ids = torch.tensor(tokenizer.encode(text))
    if len(ids) <= WINDOW:
        raise ValueError(f"text has {len(ids)} tokens; expected more than {WINDOW}, one window")
    windows = ids.unfold(0, WINDOW + 1, WINDOW // 2)
    judged = windows[:, -(WINDOW // 2) :]
    nats = 0.0
    for window, targets in zip(windows.split(32), judged.split(32), strict=True):
        logits = model(window[:, :-1].to(runtime.device()))[:, -(WINDOW // 2) :].float()
        nats += float(F.cross_entropy(logits.flatten(0, 1), targets.flatten().to(logits.device), reduction="sum"))
    return nats / math.log(2) / len(tokenizer.decode_bytes(judged.flatten().tolist()))


@experiment
def vocabularies(seeds: Sequence[int] = (1, 2), *, steps: int = 800) -> list[dict[str, Any]]:
    """Bits per byte as small language models learn the same text, split with each of `VOCABULARIES`.

    Steps have the same number of tokens for all of them, so larger vocabularies read more bytes per step. The learning
    rate depends on the step alone: each point of a curve is a complete run that ends there.
    """
    text = data.load("tiny-shakespeare", fallback="python-reference")
    tokenizers = [Tokenizer.learn([text.train], vocab) for vocab in VOCABULARIES]
    return [{"seed": seed, **_run(tokenizer, text, seed, steps)} for seed in seeds for tokenizer in tokenizers]


def _run(tokenizer: Tokenizer, text: Text, seed: int, steps: int) -> dict[str, Any]:
    def evaluate(model: LanguageModel) -> dict[str, float]:
        return {"bits": bits_per_byte(model, text.valid[:JUDGED], tokenizer)}

    runtime.seed(seed)
    ids = torch.tensor(tokenizer.encode(text.train))
    model = LanguageModel(len(tokenizer), SIZES).to(runtime.device())
    windows = Windows(ids, length=WINDOW + 1, size=BATCH, seed=seed)
    recipe = training.Recipe(steps=steps, lr=3e-3, schedule=training.inverse_sqrt(100), mixed_precision=False)
    history = training.fit(model, next_token_loss, windows, recipe, evaluate=evaluate)
    return {
        "vocab": len(tokenizer),
        "parameters": parameters(model),
        "bytes a token": round(len(text.train.encode()) / len(ids), 4),
        "curve": [{key: round(value, 4) for key, value in row.items()} for row in history.evaluations],
    }


def learning_curve(row: dict[str, Any], what: str) -> tuple[list[float], list[float]]:
    """The cumulative `what` of a run of `vocabularies` at each evaluation, and its bits per byte there.

    `what` is "tokens", "bytes" or "operations", six per parameter and token (Kaplan et al., 2020, section 2.1). Raises
    ValueError for anything else.
    """
    per_token = {"tokens": 1, "bytes": row["bytes a token"], "operations": 6 * row["parameters"]}
    if what not in per_token:
        raise ValueError(f"what is {what!r}; expected one of {', '.join(map(repr, per_token))}")
    spent = [point["step"] * BATCH * WINDOW * per_token[what] for point in row["curve"]]
    return spent, [point["bits"] for point in row["curve"]]


def at_equal(rows: Sequence[dict[str, Any]], what: str) -> dict[int, list[float]]:
    """Bits per byte, one per seed, at the point where every run has spent as many `what` as the smallest total.

    Raises ValueError as `learning_curve` does.
    """
    curves = [(row["vocab"], *learning_curve(row, what)) for row in rows]
    limit = min(spent[-1] for _, spent, _ in curves)
    found: dict[int, list[float]] = {vocab: [] for vocab, _, _ in curves}
    for vocab, spent, bits in curves:
        found[vocab].append(float(np.interp(limit, spent, bits)))
    return found


# ---- live: letter counters -------------------------------------------------------------------------------------------


def divided(words: Sequence[str], most: int = 3000) -> tuple[list[str], list[str]]:
    """Up to `most` words in a fixed random order: words for training, and a seventh held out."""
    order = torch.randperm(len(words), generator=torch.Generator().manual_seed(0)).tolist()[:most]
    new = len(order) // 7
    return [words[i] for i in order[new:]], [words[i] for i in order[:new]]


def worth(
    words: Sequence[str], letter: str, tokenizer: Tokenizer, values: Float[Tensor, " token"], count: int = 4
) -> list[tuple[list[str], list[float]]]:
    """The tokens of the first short words that contain the letter, after a space, and the value of each token."""
    shown = [tokenizer.encode(f" {word}") for word in words if letter in word and len(word) < 9][:count]
    return [([tokenizer.decode([i]).strip() for i in ids], values[ids].tolist()) for ids in shown]


# ---- live: vectors from neighbors ------------------------------------------------------------------------------------


class Neighbors:
    """Batches of rows: a word, one of the `window` words on each side of it, and `negatives` random words.

    Pairs of frequent words are dropped at random, and random words are drawn in proportion to frequency^¾ (Mikolov et
    al., 2013, sections 2.2 and 2.3; the paper drops frequent words from the text, here they are dropped from pairs).
    """

    RARE = 1e-3  # frequency up to which a word keeps all of its pairs

    def __init__(
        self,
        sentences: Sequence[Sequence[str]],
        *,
        window: int = 2,
        size: int = 1024,
        negatives: int = 5,
        seed: int = 1,
    ):
        counts = Counter(word for sentence in sentences for word in sentence)
        self.words = sorted(counts)
        self.size, self.negatives, self.seed = size, negatives, seed
        share = torch.tensor([counts[word] for word in self.words]) / counts.total()
        self._noise = share**0.75
        id_of = {word: number for number, word in enumerate(self.words)}
        ids = torch.tensor([id_of[word] for sentence in sentences for word in sentence])
        sentence = torch.repeat_interleave(torch.tensor([len(sentence) for sentence in sentences]))
        pairs = torch.cat([_pairs_at(ids, sentence, distance) for distance in range(1, window + 1)])
        keep = (self.RARE / share).sqrt().clamp(max=1)[pairs].prod(dim=1)
        self.pairs = pairs[torch.rand(len(pairs), generator=torch.Generator().manual_seed(seed)) < keep]

    def __call__(self, step: int) -> Int64[Tensor, "batch columns"]:
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + step) % 2**32)
        rows = self.pairs[torch.randint(len(self.pairs), (self.size,), generator=generator)]
        noise = torch.multinomial(self._noise, self.size * self.negatives, replacement=True, generator=generator)
        return torch.cat([rows, noise.view(self.size, self.negatives)], dim=1)


def _pairs_at(ids: Int64[Tensor, " time"], sentence: Int64[Tensor, " time"], distance: int) -> Int64[Tensor, "pair 2"]:
    """Pairs of words of one sentence that are `distance` apart, in both orders."""
    together = sentence[distance:] == sentence[:-distance]
    pairs = torch.stack([ids[:-distance], ids[distance:]], dim=1)[together]
    return torch.cat([pairs, pairs.flip(1)])


# Nouns of the generated corpus by the kind in its grammar, singular and plural if both occur in training.
_NOUNS = {
    "person": """
        man/men woman/women boy/boys girl/girls child/children guest/guests father/fathers mother/mothers
        brother/brothers sister/sisters grandfather/grandfathers grandmother/grandmothers uncle/uncles aunt/aunts
        friend/friends neighbour/neighbours teacher/teachers student/students doctor/doctors nurse/nurses
        farmer/farmers king/kings queen/queens princess/princesses actress/actresses lawyer/lawyers hero/heroes
        thief/thieves witch/witches
    """,
    "animal": """
        dog/dogs cat/cats horse/horses bird/birds cow/cows mouse/mice wolf/wolves bear/bears rabbit/rabbits owl/owls
        hedgehog/hedgehogs monkey/monkeys
    """,
    "food": """
        apple/apples orange/oranges strawberry/strawberries tomato/tomatoes potato/potatoes cake/cakes egg/eggs
        mushroom/mushrooms bread cheese meat soup rice
    """,
    "place": """
        house/houses garden/gardens school/schools church/churches hotel/hotels hospital/hospitals library/libraries
        university/universities castle/castles shop/shops village/villages city/cities street/streets forest/forests
        kitchen/kitchens bedroom/bedrooms
    """,
}
NOUNS = {kind: [noun.split("/") for noun in nouns.split()] for kind, nouns in _NOUNS.items()}


def nearest(vectors: Float[Tensor, "word width"], words: Sequence[str], word: str, count: int = 5) -> list[str]:
    """The words whose vectors have the largest cosine with that of `word`. Raises ValueError for an unknown word."""
    if word not in words:
        raise ValueError(f"word is {word!r}, which is none of the {len(words)} words")
    unit = F.normalize(vectors, dim=-1)
    place = list(words).index(word)
    cosines = (unit @ unit[place]).index_fill(0, torch.tensor([place], device=unit.device), -2.0)
    return [words[number] for number in cosines.topk(count).indices.tolist()]
