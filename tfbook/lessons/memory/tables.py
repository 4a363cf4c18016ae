"""Tables of the lesson's runs, the numbers of its claims, and stories to look at."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tfbook import runtime
from tfbook.data.stories.errands import ASKING, FACTS, WORDINGS, Act, errand
from tfbook.lessons.memory.asking import answers, asked
from tfbook.lessons.memory.readers import read, unseen, unseen_errands
from tfbook.lessons.memory.rules import RULES, share_right
from tfbook.models.memory_network import MemoryNetwork

if TYPE_CHECKING:
    from pandas import DataFrame
    from pandas.io.formats.style import Styler

    from tfbook.plot import AskedStory

    Reading = tuple[Sequence[str], AskedStory, Sequence[int], str]

SHOWN = {"thing": 10_000_329, "before": 10_000_252}  # kind of question → a short unseen story


@cache
def rule_table() -> DataFrame:
    """Share of right answers: a row for each rule of thumb, a column for each kind of question."""
    import pandas as pd

    return pd.DataFrame({name: share_right(rule, unseen_errands()) for name, rule in RULES.items()}).T


def shown(table: DataFrame) -> Styler:
    """The table in percent, with the wording of each kind of question."""
    named = table.rename(columns={kind: f"{wording}?" for kind, wording in ASKING.items()})
    return named.style.format("{:.0%}")


def mean_right(runs: DataFrame, reader: str) -> dict[str, float]:
    """A reader's share of right answers by kind of question, the mean of its seeds."""
    found = runs[runs["reader"] == reader]["right"]
    return {kind: sum(right[kind] for right in found) / len(found) for kind in ASKING}


def parts_table(runs: DataFrame, varied: DataFrame) -> DataFrame:
    """Share of right answers of the whole network and of those without a part or kinds, by kind of question."""
    import pandas as pd

    names = {"whole": "3 hops", "without places in the bag": "3 hops, plain bags", "without ages": "3 hops, no ages"}
    rows = {shown: mean_right(runs, name) for shown, name in names.items()}
    return pd.DataFrame(rows | {"without kinds of stand-ins": mean_right(varied, "3 hops, one pool")}).T


def scoreboard(
    best_rule: Mapping[str, float], layered: DataFrame, longer: DataFrame, runs: DataFrame
) -> dict[str, Mapping[str, float]]:
    """The best rule, one and two hops, and one and two layers, by kind of question: means of the seeds."""
    return {
        "best rule": best_rule,
        "1 hop": mean_right(runs, "1 hop"),
        "1 layer": mean_right(layered, "1 layer over sentences"),
        "2 hops": mean_right(runs, "2 hops"),
        "2 layers, 8,000 steps": mean_right(longer, "2 layers over sentences, longer"),
    }


def readings(model: nn.Module) -> list[Reading]:
    """Two unseen stories, each with a question of two facts: sentences, what was asked, facts and answer."""
    found: list[Reading] = []
    for kind, seed in SHOWN.items():
        story = errand(seed)
        question = next(each for each in story.questions if each.kind == kind)
        sentences = [act.text() for act in story.acts]
        found.append((sentences, asked(model, story.acts, question.act), question.support, question.answer))
    return found


# ---- does the moment matter? -----------------------------------------------------------------------------------------


def last_walk(acts: Sequence[Act], support: Sequence[int]) -> str:
    """Where the person of the second fact went last, by the end of the story: right, but for the moment."""
    walker = ("A", dict(acts[support[1]].names)["A"])
    return next(dict(act.names)["p"] for act in reversed(acts) if act.event == "go" and walker in act.names)


def moments_table(readers: Mapping[str, nn.Module]) -> DataFrame:
    """Right answers to "Where is x?" of an oracle blind to the moment and of readers, where that is enough, or not."""
    import pandas as pd

    things = [(story, question) for story, question in unseen_errands().asked if question.kind == "thing"]
    blind = [last_walk(story.acts, question.support) == question.answer for story, question in things]
    rows = unseen()[unseen().kind == [*ASKING].index("thing")]
    found = pd.DataFrame({"last walk of the right person": blind})
    for name, model in readers.items():
        found[name] = (read(model, rows).logits.argmax(dim=1) == rows.answer).tolist()
    split = pd.Series(blind).map({True: "the last walk is enough", False: "only the moment tells"})
    parts = found.groupby(split).mean().assign(questions=split.value_counts()).iloc[::-1]
    parts.loc["all"] = {**found.mean(), "questions": len(found)}
    return parts.astype({"questions": int})


# ---- does a hop need its fact? ---------------------------------------------------------------------------------------

HIDDEN = {  # what is hidden → the number of the fact, 0 for another sentence, and the hops that do not see it
    "nothing": (0, ()),
    "another sentence, from all hops": (0, (1, 2, 3)),
    "the first fact, from hop 1": (1, (1,)),
    "the first fact, from hops 2 and 3": (1, (2, 3)),
    "the second fact, from hop 1": (2, (1,)),
    "the second fact, from hops 2 and 3": (2, (2, 3)),
}


@contextmanager
def hidden_from(model: MemoryNetwork, hidden: Tensor, hops: Collection[int]) -> Iterator[None]:
    """Inside, these hops of one pass do not see the sentences that are True in `hidden`, (batch, sentence)."""
    whole, number = model.hop, count(1)

    def blind(query: Tensor, addresses: Tensor, contents: Tensor, filled: Tensor) -> tuple[Tensor, Tensor]:
        return whole(query, addresses, contents, filled & ~hidden if next(number) in hops else filled)

    model.hop = blind
    try:
        yield
    finally:
        model.hop = whole


@torch.no_grad()
def hiding_table(model: MemoryNetwork) -> DataFrame:
    """Right answers of a network with three hops to "Where is x?", where some hops do not see a sentence."""
    import pandas as pd

    rows = unseen()[unseen().kind == [*ASKING].index("thing")]
    others = rows.story.ne(0).any(dim=-1) & rows.support.eq(0)
    rows, others = rows[others.any(dim=1)].to(runtime.device()), others[others.any(dim=1)]
    drawn = torch.multinomial(others.float(), 1, generator=torch.Generator().manual_seed(18))
    another = torch.zeros_like(others).scatter(1, drawn, value=True).to(runtime.device())
    right = {}
    for name, (fact, hops) in HIDDEN.items():
        with hidden_from(model, rows.support == fact if fact else another, hops):
            found = model(rows.story, rows.question).logits.argmax(dim=1)
        right[name] = float((found == rows.answer).float().mean())
    return pd.DataFrame({"right answers to “Where is x?”": right}).rename_axis("hidden")


# ---- stories that break it -------------------------------------------------------------------------------------------

ASIDES = ("", "", "Bo slept.", "Bo laughed.", "Cy sang.", "Bo thought of the ring.", "Cy went to the barn.")
LATER = ("the lake", "the town", "the park")
STORIES_TRIED = 40


def left_behind(walks: int, number: int) -> str:
    """A story in which Ann leaves the ring in the mill and takes some walks, up to three; wordings and asides drawn."""
    dice = random.Random(f"left behind {walks} {number}")

    def told(event: str, **names: str) -> str:
        wording = dice.choice([each for each in WORDINGS[event] if "back" not in each])
        return " ".join({"A": "Ann", "x": "the ring", **names}.get(word, word) for word in wording.split()) + "."

    acts = [told("go", p="the mill"), told("take"), told("drop"), *(told("go", p=place) for place in LATER[:walks])]
    return " ".join(part for act in acts for part in (dice.choice(ASIDES), act) if part) + " " + dice.choice(ASIDES)


def left_behind_table(readers: Mapping[str, nn.Module]) -> DataFrame:
    """How many of 40 stories each reader gets right, by the walks after the drop."""
    import pandas as pd

    asks = "Where is the ring?"
    stories = {walks: [left_behind(walks, number) for number in range(STORIES_TRIED)] for walks in range(4)}
    right = {
        name: [sum(answers(model, story, [asks])[asks] == "the mill" for story in each) for each in stories.values()]
        for name, model in readers.items()
    }
    index = pd.Index([*stories], name="walks after the drop")
    return pd.DataFrame(right, index=index).astype(str) + f" of {STORIES_TRIED}"


@cache
def given_share() -> float:
    """The share of the questions "Who has x?" about unseen stories that follow from a giving."""
    asked_about = [(story, each) for story, each in unseen_errands().asked if each.kind == "holder"]
    given = [story.acts[each.support[0]].event == "give" for story, each in asked_about]
    return sum(given) / len(given)


# ---- the numbers of claims -------------------------------------------------------------------------------------------


def hop_claims(runs: DataFrame) -> dict[int, float]:
    """One hop on "Where is x?", what a second hop adds there, and its attention: hop 1 on fact 1, hop 2 on fact 2."""
    shares = {name: [right["thing"] for right in runs[runs["reader"] == name]["right"]] for name in ("1 hop", "2 hops")}
    looks = [
        hop[link] for found in runs[runs["reader"] == "2 hops"]["looks"] for link, hop in enumerate(found["thing"])
    ]
    return {2: max(shares["1 hop"]), 3: min(shares["2 hops"]) - max(shares["1 hop"]), 4: min(looks)}


def reader_claims(right: Mapping[str, float], best_rule: Mapping[str, float]) -> dict[int, float]:
    """The least share on questions of one fact and of two, and the least lead over the best rule of thumb."""
    least = {facts: min(right[kind] for kind in ASKING if FACTS[kind] == facts) for facts in (1, 2)}
    return {5: least[1], 6: least[2], 7: min(right[kind] - best_rule[kind] for kind in ASKING)}


def hiding_claims(hiding: DataFrame) -> dict[int, float]:
    """The share of answers lost where hops 2 and 3 do not see the second fact, and not where hop 1 does not."""
    right = hiding.iloc[:, 0]
    return {8: right["the second fact, from hop 1"] - right["the second fact, from hops 2 and 3"]}


def part_claims(runs: DataFrame) -> dict[int, float]:
    """The loss without places on "Who has x?", and without ages on "Where is A?"."""
    whole = mean_right(runs, "3 hops")
    return {
        12: whole["holder"] - mean_right(runs, "3 hops, plain bags")["holder"],
        13: whole["person"] - mean_right(runs, "3 hops, no ages")["person"],
    }


def layer_claims(longer: DataFrame) -> dict[int, float]:
    """The least share of right answers to "Where is x?" among the runs of two layers."""
    return {11: min(right["thing"] for right in longer["right"])}
