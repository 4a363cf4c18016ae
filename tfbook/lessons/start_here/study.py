"""Study of lesson 00: stories as letters, tables of counts, a small network, and what models of later lessons do.

Shapes: batch, context.
"""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from functools import cache
from itertools import pairwise
from statistics import fmean as mean
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import data, runtime
from tfbook.course.experiments import experiment, stored
from tfbook.data.stories import Stories, words_of, written
from tfbook.data.stories.lexicon import NAMES, NOUNS, PLACES, SPECIES
from tfbook.lessons.start_here import exercises as ex
from tfbook.lessons.start_here.answers import answer as answer
from tfbook.lessons.start_here.claims import CLAIMS as CLAIMS
from tfbook.lessons.start_here.translation import CROSSINGS as CROSSINGS, crossings as crossings
from tfbook.plot.views.guessing import ALPHABET, GuessingView, guessing_view
from tfbook.pretrain.storyteller import Storyteller, load_storyteller, tell
from tfbook.text.vocabulary import BOS

if TYPE_CHECKING:
    from pandas import DataFrame

LETTERS = 200_000  # of the corpus: half of them to learn from, a quarter to choose on, a quarter to judge
EXTRA = 0.01  # added to every count, so that no letter is impossible
BEST_TABLE, BEST_BLEND = 5, 7  # letters of context, chosen on the second part
LONGEST = 14  # letters of context of Kneser-Ney counts, chosen there, too, and with them the discount 0.9
CONTEXT, WIDTH, HIDDEN = 10, 16, 256  # of the network
STEPS, BATCH = 2000, 512  # of its training
RATE, ROUNDS = 8e-3, 10  # the rate, chosen on the second part, falls by rounds
WIDER, WIDER_STEPS, WIDER_RATE, DROPOUT = 512, 3200, 4e-3, 0.3  # of the wider network, chosen on the second part

# ---- letters and tables of counts ------------------------------------------------------------------------------------


def letters_of(stories: str | Iterable[str], most: int | None = None) -> str:
    """The first `most` letters of the stories, in Shannon's alphabet: a to z, and one space for all else."""
    text = stories if isinstance(stories, str) else " ".join(stories)
    return re.sub("[^a-z]+", " ", text.lower())[:most]


def parts(text: str) -> tuple[str, str, str]:
    """The letters to learn from, the first half, and two quarters: to choose on, and to judge."""
    half, quarter = len(text) // 2, len(text) // 4
    return text[:half], text[half : half + quarter], text[half + quarter :]


def corpus_letters() -> tuple[str, str, str]:
    """The parts of the text that the lesson uses."""
    return parts(letters_of(_stories()["train"], LETTERS))


def ids_of(text: str) -> Int64[Tensor, "time"]:
    """The place of each letter in the alphabet, 0 for the space."""
    return torch.tensor([ALPHABET.index(letter) for letter in text])


def table_surprises(seen: str, judged: str, context: int, extra: float = EXTRA) -> list[float]:
    """−ln p of each letter of `judged` after the first `context`, by the counts of `seen`, each plus `extra`."""
    pasts = Counter(seen[i - context : i] for i in range(context, len(seen)))
    runs = Counter(seen[i - context : i + 1] for i in range(context, len(seen)))
    total = extra * len(ALPHABET)
    pairs = ((judged[i - context : i], judged[i - context : i + 1]) for i in range(context, len(judged)))
    return [-math.log((runs[run] + extra) / (pasts[past] + total)) for past, run in pairs]


def table_losses(seen: str, judged: str, contexts: Iterable[int]) -> list[float]:
    """Nats per letter of `judged` by tables of the counts of `seen`, one for each length of context."""
    surprises = (table_surprises(seen, judged, context) for context in contexts)
    return [mean(row) for row in surprises]


def blended_surprises(seen: str, judged: str, context: int) -> list[float]:
    """−ln p of each letter of `judged` after the first `context`, by counts of `seen`.

    They are blended with those of shorter contexts: Witten and Bell (1991), method C.
    """
    letters = range(len(judged) - context)
    p = [1 / len(ALPHABET) for _ in letters]  # before any counts, all letters are alike
    for n in range(context + 1):
        runs = Counter(seen[i - n : i + 1] for i in range(n, len(seen)))
        pasts = Counter(seen[i - n : i] for i in range(n, len(seen)))
        kinds = Counter(run[:n] for run in runs)  # how many different letters follow
        for i in letters:
            run = judged[i + context - n : i + context + 1]
            if (past := run[:n]) in pasts:
                p[i] = (runs[run] + kinds[past] * p[i]) / (pasts[past] + kinds[past])
    return [-math.log(each) for each in p]


def blended_loss(seen: str, judged: str, context: int) -> float:
    """Nats per letter of `judged` by blended counts of `seen`."""
    return mean(blended_surprises(seen, judged, context))


def kneser_ney_surprises(seen: str, judged: str, context: int, discount: float = 0.9) -> list[float]:
    """−ln p of each letter of `judged` after the first `context`, by Kneser-Ney counts.

    Each count gives `discount` to shorter contexts, in which a run counts the different
    letters before it: Kneser and Ney (1995), interpolated as by Chen and Goodman (1999).
    """
    letters = range(len(judged) - context)
    p = [1 / len(ALPHABET) for _ in letters]
    for n in range(context + 1):
        runs = Counter(seen[i - n : i + 1] for i in range(n, len(seen)))
        if n < context:
            longer = {seen[i - n - 1 : i + 1] for i in range(n + 1, len(seen))}
            runs = Counter(run[1:] for run in longer)  # how many different letters come before
        kinds = Counter(run[:n] for run in runs)  # how many different letters follow
        pasts = Counter[str]()
        for run, count in runs.items():
            pasts[run[:n]] += count
        for i in letters:
            run = judged[i + context - n : i + context + 1]
            if (past := run[:n]) in pasts:
                kept, given = max(runs[run] - discount, 0), discount * kinds[past]
                p[i] = (kept + given * p[i]) / pasts[past]
    return [-math.log(each) for each in p]


def kneser_ney_loss(seen: str, judged: str, context: int) -> float:
    """Nats per letter of `judged` by Kneser-Ney counts of `seen`."""
    return mean(kneser_ney_surprises(seen, judged, context))


# ---- the game --------------------------------------------------------------------------------------------------------

SPLIT, NUMBER, GIVEN, TO_GUESS = "valid", 6, 33, 53  # the story of the game, and its letters


def _stories() -> Stories:
    """The corpus, without the line of its size that `data.load` prints."""
    with redirect_stdout(io.StringIO()):
        return data.load("stories")


def guessing_game() -> GuessingView:
    """Shannon's game on a story that no model has seen, beside a table of pairs and lesson 09's model."""
    corpus = _stories()
    story = corpus[SPLIT][NUMBER]
    text, end = letters_of(story), GIVEN + TO_GUESS
    seen = letters_of(corpus["train"], LETTERS)[: LETTERS // 2]
    players = {
        "a model that knows nothing": [math.log(len(ALPHABET))] * TO_GUESS,
        "a table of letter pairs": table_surprises(seen, text[:end], 1)[GIVEN - 1 :],
        "lesson 09's model": letter_surprises(load_storyteller(), story)[GIVEN:end],
    }
    rarest_first = reversed(Counter(pairwise(seen)).most_common())
    favorites = dict(pair for pair, _ in rarest_first)  # the last of each letter stays: the most frequent
    return guessing_view(text[:end], GIVEN, players, "".join(favorites[letter] for letter in text[GIVEN - 1 : end - 1]))


def game_losses(game: GuessingView, seen: str) -> dict[str, float]:
    """Nats per letter that is to be guessed, by all players and by counts of `seen`."""
    surprises = {
        "knows nothing": game.players["a model that knows nothing"],
        "table, one letter": table_surprises(seen, game.text, 1),
        "best table": table_surprises(seen, game.text, BEST_TABLE),
        "blended counts": blended_surprises(seen, game.text, BEST_BLEND),
        "Kneser–Ney counts": kneser_ney_surprises(seen, game.text, LONGEST),
        "lesson 09's model": game.players["lesson 09's model"],
    }
    return {name: mean(row[game.given - len(game.text) :]) for name, row in surprises.items()}


@torch.no_grad()
def letter_surprises(teller: Storyteller, story: str, view: int | None = None) -> list[float]:
    """−ln p in nats at each letter: the surprise of a word, and of marks before it, shared equally by its letters.

    A word's share includes the space after it. The model sees the last `view` tokens only; None: all of them.
    """
    words = words_of(story)
    ids = torch.tensor([BOS, *teller.vocabulary.encode(words)], device=next(teller.model.parameters()).device)
    logits = _logits(teller, ids[:-1], len(ids) if view is None else view)
    carried, letters = 0.0, list[float]()
    for word, nats in zip(words, F.cross_entropy(logits, ids[1:], reduction="none").tolist(), strict=True):
        carried += nats
        if count := len(letters_of(word).strip()):
            letters += [carried / (count + 1)] * (count + 1)
            carried = 0.0
    return letters


def _logits(teller: Storyteller, ids: Int64[Tensor, "time"], view: int) -> Float[Tensor, "time vocabulary"]:
    """Logits after each token, by a model that sees it and the `view` − 1 tokens before it."""
    first = teller.model(ids[None, :view])[0]
    if view >= len(ids):
        return first
    return torch.cat([first, teller.model(ids.unfold(0, view, 1)[1:])[:, -1]])


def storyteller_loss(stories: int = 40) -> float:
    """Nats per letter of lesson 09's model on stories that nobody has seen, punctuation included."""
    teller = load_storyteller()
    surprises = [nats for story in _stories()[SPLIT][:stories] for nats in letter_surprises(teller, story)]
    return sum(surprises) / len(surprises)


def tell_on(beginning: str) -> str:
    """A story by lesson 09's model that begins as the reader says; prints what of the beginning it has never read."""
    teller, begun = load_storyteller(), words_of(beginning)
    if unknown := unknown_in(beginning):
        print("Its training stories never say", ", ".join(unknown) + ", so it may lose the thread.")
        print("The names that it has read:", ", ".join(names_read()))
    (words,) = tell(teller, 1, temperature=0.7, beginning=beginning)
    return written([*begun, *words[len(begun) :]])  # where the model read `<unk>`, the reader's own word


def unknown_in(beginning: str) -> list[str]:
    """The words that no story of the training text has, and the characters that are left out, such as digits."""
    words = words_of(beginning)
    read = "".join(words).lower()
    strange = [letter for letter in beginning.lower() if letter not in read and not letter.isspace()]
    return [*dict.fromkeys(word for word in [*words, *strange] if word not in words_read())]


@cache
def words_read() -> frozenset[str]:
    """All words and marks of the training text of lesson 09's model."""
    return frozenset(word for story in _stories()["train"] for word in words_of(story))


def names_read() -> list[str]:
    """The names in that text, which are few of all that the vocabulary holds."""
    return [name for name in NAMES if name in words_read()]


# ---- a network -------------------------------------------------------------------------------------------------------


class Network(ex.Parts):
    """Logits of the next letter from the last `context` letters (Bengio et al., 2003)."""

    def forward(self, letters: Int64[Tensor, "batch context"]) -> Float[Tensor, "batch 27"]:
        return ex.forward.reference(self, letters)


def wider_network(dropout: float = DROPOUT) -> nn.Sequential:
    """The network with more hidden units, of which dropout leaves out some at every step of training."""
    hidden = [nn.Linear(CONTEXT * WIDTH, WIDER), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(nn.Embedding(27, WIDTH), nn.Flatten(), *hidden, nn.Linear(WIDER, 27))


def draw(x: Tensor, y: Tensor, size: int, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """`steps` batches of `size` examples, drawn at random."""
    for _ in range(steps):
        rows = torch.randint(len(x), (size,)).to(x.device)
        yield x[rows], y[rows]


@torch.no_grad()
def loss_on(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Nats per letter over all examples."""
    return F.cross_entropy(model(x), y).item()


def trained(model: nn.Module, seen: str, steps: int, lr: float) -> nn.Module:
    """The model after the lesson's training on `seen`, in rounds of a falling learning rate; in eval mode."""
    x, y = ex.windows.reference(ids_of(seen), CONTEXT)
    for k in range(ROUNDS):
        ex.train.reference(model, draw(x, y, BATCH, steps // ROUNDS), lr * (1 - k / ROUNDS))
    return model.eval()


@experiment
def networks(seeds: Iterable[int] = (1, 2, 3)) -> list[dict[str, Any]]:
    """The lesson's network and a wider one with dropout, judged on the last quarter of the text."""
    seen, _, judged = corpus_letters()
    examples = ex.windows.reference(ids_of(judged), CONTEXT)
    rows = []
    for seed in seeds:
        runtime.seed(seed)
        network = trained(Network(CONTEXT, WIDTH, HIDDEN), seen, STEPS, RATE)
        runtime.seed(seed)
        wider = trained(wider_network(), seen, WIDER_STEPS, WIDER_RATE)
        losses = {"network": loss_on(network, *examples), "wider": loss_on(wider, *examples)}
        rows.append({"seed": seed, **{name: round(loss, 4) for name, loss in losses.items()}})
    return rows


@experiment
def without_dropout(seeds: Iterable[int] = (1, 2, 3)) -> list[dict[str, Any]]:
    """The wider network of `networks`, trained as long and at the same rate, but without dropout."""
    seen, _, judged = corpus_letters()
    examples = ex.windows.reference(ids_of(judged), CONTEXT)
    rows = []
    for seed in seeds:
        runtime.seed(seed)
        wider = trained(wider_network(dropout=0), seen, WIDER_STEPS, WIDER_RATE)
        rows.append({"seed": seed, "wider": round(loss_on(wider, *examples), 4)})
    return rows


# ---- what is left to learn -------------------------------------------------------------------------------------------

MANY = 2_000_000  # letters to count
VIEWS = (30, 8, 3)  # tokens that lesson 09's model may see, where it does not see all


@experiment
def names(stories: int = 100) -> list[dict[str, Any]]:
    """Nats per letter of held-out stories, per name of somebody who was named before, and per letter of the rest.

    By Kneser-Ney counts of the lesson's letters and of 20 times as many, and by lesson 09's model, which sees the whole
    story so far, and by the same model where it sees the last tokens only.
    """
    corpus, teller = _stories(), load_storyteller()
    held_out = corpus[SPLIT][:stories]
    text, places = "".join(map(letters_of, held_out)), returning_names(held_out)
    few, many = corpus_letters()[0], letters_of(corpus["train"], MANY)
    surprises = {
        "few letters": kneser_ney_surprises(few, " " * LONGEST + text, LONGEST),
        "many letters": kneser_ney_surprises(many, " " * LONGEST + text, LONGEST),
        "lesson 09": [nats for story in held_out for nats in letter_surprises(teller, story)],
    }
    for view in VIEWS:
        surprises[f"last {view}"] = [nats for story in held_out for nats in letter_surprises(teller, story, view)]
    return [{"model": model, **_by_place(row, places)} for model, row in surprises.items()]


def _by_place(surprises: list[float], places: list[tuple[int, int]]) -> dict[str, float]:
    """The mean per letter, per name at `places`, and per letter elsewhere."""
    inside = {letter for i, j in places for letter in range(i, j)}
    return {
        "letter": round(mean(surprises), 4),
        "name": round(mean([sum(surprises[i:j]) for i, j in places]), 4),
        "rest": round(mean([nats for letter, nats in enumerate(surprises) if letter not in inside]), 4),
    }


def returning_names(stories: Iterable[str]) -> list[tuple[int, int]]:
    """Where names begin, and where the space after them ends, in the joined letters; of those named before only."""
    places, at, known = list[tuple[int, int]](), 0, {name.lower() for name in NAMES}
    for story in stories:
        named = set[str]()
        for word in letters_of(story).split(" ")[:-1]:
            end = at + len(word) + 1
            places += [(at, end)] * (word in named)
            named |= known & {word}
            at = end
    return places


# ---- what the embeddings learn ---------------------------------------------------------------------------------------

WORDS = {"animals": SPECIES, "places": PLACES, "things": NOUNS, "names": NAMES}
SMALL_START = 0.05  # of the usual size, of an embedding's random numbers before training


def word_vectors() -> tuple[Float[Tensor, "word d_model"], list[str], list[str]]:
    """Lesson 09's embedding of the nouns and names that its training text used, these words, and the kind of each."""
    teller = load_storyteller()
    kinds = {word: kind for kind, words in WORDS.items() for word in words if word in words_read()}
    vectors = teller.model.embed.weight.detach().cpu()[teller.vocabulary.encode([*kinds])]
    return vectors, [*kinds], [*kinds.values()]


def alike(vectors: Float[Tensor, "row d_model"]) -> Float[Tensor, "row row"]:
    """Cosine similarity of each row to each other one, seen from the mean of all rows."""
    directions = F.normalize(vectors - vectors.mean(dim=0), dim=1)
    return directions @ directions.T


@experiment
def letter_embeddings(seeds: Iterable[int] = (1, 2, 3)) -> list[dict[str, Any]]:
    """How alike the vectors of two vowels, and of a vowel and a consonant, are before and after the lesson's training.

    From the usual random start, and from a smaller one.
    """
    seen, valid, _ = corpus_letters()
    examples, rows = ex.windows.reference(ids_of(valid), CONTEXT), list[dict[str, Any]]()
    for start in (1.0, SMALL_START):
        for seed in seeds:
            runtime.seed(seed)
            network = Network(CONTEXT, WIDTH, HIDDEN)
            network.embed.weight.data *= start
            before = _vowels(network.embed.weight.detach().clone())
            loss = loss_on(trained(network, seen, STEPS, RATE), *examples)
            after = _vowels(network.embed.weight.detach())
            rows.append({"start": start, "seed": seed, "loss": round(loss, 4), "before": before, "after": after})
    return rows


def _vowels(vectors: Float[Tensor, "27 d_model"]) -> dict[str, float]:
    """Mean similarity within the vowels and between them and consonants, and vowels whose nearest letter is one."""
    similar = alike(vectors).fill_diagonal_(-torch.inf)
    vowels = [ALPHABET.index(letter) for letter in "aeiou"]
    consonants = [place for place in range(1, len(ALPHABET)) if place not in vowels]
    within = similar[vowels][:, vowels]
    nearest = similar[vowels].argmax(dim=1).tolist()
    return {
        "vowels": round(within[within > -torch.inf].mean().item(), 4),
        "mixed": round(similar[vowels][:, consonants].mean().item(), 4),
        "nearest": sum(place in vowels for place in nearest),
    }


def vowel_runs() -> DataFrame:
    """The stored runs of `letter_embeddings`: mean similarities of three seeds, and all their vowels next to vowels."""
    import pandas as pd

    rows = [
        {"size of the random start": row["start"], "training": when, **row[when]}
        for row in stored("start_here.letter_embeddings").rows
        for when in ("before", "after")
    ]
    names = {
        "two vowels": ("vowels", "mean"),
        "vowel, consonant": ("mixed", "mean"),
        "nearest is a vowel, of 15": ("nearest", "sum"),
    }
    return pd.DataFrame(rows).groupby(["size of the random start", "training"], sort=False).agg(**names).round(2)


@experiment
def network_rates(
    rates: Iterable[float] = (8e-4, 2.5e-3, 8e-3, 2.5e-2, 8e-2, 0.8), seed: int = 1
) -> list[dict[str, Any]]:
    """The lesson's network after its whole training at several first rates, on the text to choose on."""
    seen, valid, _ = corpus_letters()
    examples, rows = ex.windows.reference(ids_of(valid), CONTEXT), list[dict[str, Any]]()
    for rate in rates:
        runtime.seed(seed)
        network = trained(Network(CONTEXT, WIDTH, HIDDEN), seen, STEPS, rate)
        rows.append({"rate": rate, "seed": seed, "loss": round(loss_on(network, *examples), 4)})
    return rows
