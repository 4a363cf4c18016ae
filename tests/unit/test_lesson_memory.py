"""Lesson 18: rules of thumb, readers, what is asked of them, and the figures, each on small runs."""

import pandas as pd
import pytest
import torch

from tfbook.data.stories.errand_sets import ErrandSet, errand_batch
from tfbook.data.stories.errands import (
    ASKING,
    NOBODY,
    Errand,
    ErrandQuestion,
    errand_questions,
    read_errand,
    read_question,
)
from tfbook.lessons.memory import figures, readers, rules, study, tables
from tfbook.lessons.memory.asking import answers, ask, asked

STORY = (
    "Ann lived in the mill. Ann went to the lake. Bo dreamed of the barn. Ann took the ring. Bo went to the lake. "
    "Ann gave the ring to Bo. Ann asked about the ring. Ann told Bo about the mill."
)


@pytest.fixture(scope="module")
def small() -> ErrandSet:
    return ErrandSet(range(150))


@pytest.mark.parametrize(
    ("rule", "question", "answer"),
    [
        ("first mention", "Where is Ann?", "the mill"),
        ("last mention", "Where is Ann?", "the mill"),
        ("most mentioned", "Where is Bo?", "the mill"),
        ("always “nobody”", "Who has the ring?", NOBODY),
        ("last mention beside the asked name", "Who has the ring?", "Ann"),
        ("last mention beside the asked name", "Where is the ring?", "the mill"),
        ("most mentioned beside the asked name", "Who has the ring?", "Ann"),
    ],
)
def test_rules_do_as_they_say_and_are_wrong(rule: str, question: str, answer: str) -> None:
    acts = read_errand(STORY)
    assert rules.RULES[rule](acts, read_question(question, acts)) == answer


def test_a_rule_that_knows_gets_all_and_one_that_guesses_none(small: ErrandSet) -> None:
    known = {(story.acts, question.act): question.answer for story, question in small.asked}
    right = rules.share_right(lambda acts, question: known[tuple(acts), question], small)
    assert right == dict.fromkeys(ASKING, 1.0)
    assert set(rules.share_right(lambda acts, question: "?", small).values()) == {0.0}


def test_the_best_rule_of_each_kind_is_the_tables_maximum() -> None:
    table = study.rule_table()
    assert list(table.columns) == [*ASKING]
    assert 0.5 < table.loc["last mention beside the asked name", "person"] < 0.7
    assert table.max().max() < 0.7


def test_joined_words_are_question_and_sentences_with_a_space_between() -> None:
    story = torch.tensor([[[5, 6, 0], [7, 0, 0], [0, 0, 0]], [[5, 6, 8], [7, 8, 9], [4, 0, 0]]])
    question = torch.tensor([[2, 3, 0], [2, 0, 0]])
    words, lengths = readers.joined(story, question)
    assert words[0].tolist()[: lengths[0]] == [2, 3, 0, 5, 6, 0, 7, 0]
    assert words[1].tolist()[: lengths[1]] == [2, 0, 5, 6, 8, 0, 7, 8, 9, 0, 4, 0]
    assert words[0, lengths[0] :].abs().sum() == 0


def test_readers_learn_and_their_looks_are_shares(small: ErrandSet) -> None:
    batch = small.all[torch.arange(200)]
    for model, lr in (
        (study.new_reader(2), 1e-2),
        (study.new_transformer(), 3e-3),
        (study.new_sentence_encoder(), 3e-3),
    ):
        before = readers.answer_loss(model, batch.to(readers.runtime.device())).item()
        study.train_reader(model, steps=30, lr=lr)
        assert readers.answer_loss(model, batch.to(readers.runtime.device())).item() < before
    found = study.looks(study.new_reader(2), batch)
    assert all(0 <= share <= 1 for hops in found.values() for hop in hops for share in hop)
    assert {len(hops) for hops in found.values()} == {2}
    assert all(hop[1] == 0 for hop in found["person"]), "one fact: there is no second one to look at"


def test_looks_add_up_the_weights_on_each_fact() -> None:
    acts = read_errand(STORY)
    question = ErrandQuestion(read_question("Where is the ring?", acts), "the lake", (5, 4))
    batch = errand_batch([(Errand(acts), question)])
    model = study.new_reader(2)
    weights = readers.read(model, batch).weights[0]
    expected = [[round(float(hop[5]), 3), round(float(hop[4]), 3)] for hop in weights]
    assert study.looks(model, batch)["thing"] == expected


def test_an_ageless_reader_stays_ageless(small: ErrandSet) -> None:
    model = study.ageless_reader(1)
    study.train_reader(model, steps=3)
    assert all(time.weight.abs().max() == 0 for time in model.times)


def test_the_stored_reader_answers_the_story_of_the_ring() -> None:
    story = (
        "Bilbo lived in the Shire. Bilbo traveled to the Misty Mountains. Gollum dropped the ring. "
        "Bilbo picked up the ring. Gollum wept. Bilbo went back to the Shire. Bilbo gave the ring to Frodo. "
        "Frodo set off for Mount Doom. Bilbo thought of the ring. Frodo threw away the ring. "
        "Frodo went back to the Shire. Bilbo dreamed of Mount Doom. Bilbo set off for the Grey Havens."
    )
    expected = {
        "Where is the ring?": "Mount Doom",
        "Where is Bilbo?": "the Grey Havens",
        "Where is Frodo?": "the Shire",
        "Who has the ring?": NOBODY,
    }
    assert answers(study.stored_reader(), story, [*expected]) == expected


def test_what_cannot_be_read_is_said_and_not_raised(capsys: pytest.CaptureFixture[str]) -> None:
    model = study.new_reader(1)
    assert ask(model, "Bilbo sold the ring.", "Who has the ring?") is None
    assert "○ no wording fits 'Bilbo sold the ring.'" in capsys.readouterr().out
    view = ask(model, STORY, "Who has the ring?")
    assert view is not None
    assert view.asked[0].answer in {"Ann", "Bo", "the ring", "the mill", "the lake", "the barn", NOBODY}


@pytest.mark.parametrize(
    ("story", "question", "needs"),
    [
        ("Ann had a house in the mill. Ann took the ring.", "Where is Ann?", "Ann goes somewhere"),
        ("Ann looked for the ring. Ann went to the mill.", "Who has the ring?", "takes, drops or gives the ring"),
        ("Ann took the ring. Bo went to the mill.", "Where is the ring?", "whoever had it last"),
        ("Ann went to the mill. Bo went to the lake.", "Where was Ann before the mill?", "a walk before it"),
    ],
)
def test_a_question_that_the_story_does_not_answer_gets_a_message(
    story: str, question: str, needs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(study.new_reader(1), story, question) is None
    printed = capsys.readouterr().out
    assert printed.startswith(f"○ {question} The story does not tell")
    assert needs in printed


def test_beside_a_message_the_other_questions_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    story = "Ann took the ring. Bo went to the lake. Bo went to the mill."
    questions = ["Who has the ring?", "Where is Ann?", "Where was Bo before the mill?"]
    view = ask(study.new_reader(1), story, questions)
    assert view is not None
    assert [each.question for each in view.asked] == [questions[0], questions[2]]
    assert capsys.readouterr().out.count("○") == 1


def test_the_moment_matters_rarely_and_the_shipped_network_does_not_know_the_rule() -> None:
    """The sentences below the tables of section 6."""
    reader = {"shipped": study.stored_reader()}
    table = study.moments_table(reader)
    blind = table["last walk of the right person"]
    assert (blind["the last walk is enough"], blind["only the moment tells"]) == (1, 0)
    assert table.loc["all", "questions"] == table["questions"].iloc[:2].sum()
    assert 0.9 < blind["all"] < 0.95
    assert 0.85 < table.loc["only the moment tells", "shipped"] < 0.95
    found = [int(right.split()[0]) for right in study.left_behind_table(reader)["shipped"]]
    assert found[0] == len(set(tables.left_behind(0))) == 24
    assert found[1] < 12
    assert found[2:] == [0, 0]
    for walks in range(4):
        for story in tables.left_behind(walks):
            told = [each for each in errand_questions(read_errand(story)) if each.kind == "thing"]
            assert [each.answer for each in told] == ["the mill"]


def test_a_story_with_the_right_sentence_in_sight_is_answered_wrongly() -> None:
    acts = read_errand(
        "Bo went to the barn. Ann went to the mill. Bo slept. Ann took the ring. Ann dropped the ring. "
        "Ann went to the lake. Bo laughed."
    )
    found = asked(study.stored_reader(), acts, read_question("Where is the ring?", acts))
    assert found.answer == "the lake"
    assert (round(found.weights[1][1], 2), round(found.weights[2][5], 2)) == (0.84, 0.87)


def test_an_encoder_of_sentences_sees_no_padding_and_knows_ages(small: ErrandSet) -> None:
    model, batch = study.new_sentence_encoder(layers=1).cpu().double(), small.all[torch.arange(8)]
    logits = model(batch.story, batch.question).logits
    longest = int(batch.story.ne(0).any(dim=-1).sum(dim=1).max())
    torch.testing.assert_close(model(batch.story[:, :longest], batch.question).logits, logits)
    swapped = batch.story.clone()
    swapped[:, [0, 1]] = swapped[:, [1, 0]]
    assert not torch.allclose(model(swapped, batch.question).logits, logits)


def _runs() -> pd.DataFrame:
    right = {"person": 0.9, "holder": 0.8, "thing": 0.4, "before": 0.5}
    looks = {kind: [[0.7, 0.1]] for kind in ASKING}
    rows = []
    for hops in (1, 2, 3):
        for seed in (1, 2):
            better = {kind: min(1.0, share + 0.1 * hops + 0.01 * seed) for kind, share in right.items()}
            name = f"{hops} hop{'s' * (hops > 1)}"
            rows.append(
                {"reader": name, "seed": seed, "right": better, "looks": {k: v * hops for k, v in looks.items()}}
            )
    for name in ("3 hops, plain bags", "3 hops, no ages"):
        rows.append({"reader": name, "seed": 1, "right": right, "looks": looks})
    return pd.DataFrame(rows)


def test_claims_are_differences_of_what_was_measured() -> None:
    runs = _runs()
    assert tables.hop_claims(runs) == pytest.approx({2: 0.52, 3: 0.61 - 0.52, 4: 0.1})
    right = {"person": 0.99, "holder": 0.97, "thing": 0.9, "before": 0.95}
    rule = {"person": 0.6, "holder": 0.5, "thing": 0.6, "before": 0.5}
    assert tables.reader_claims(right, rule) == pytest.approx({5: 0.97, 6: 0.9, 7: 0.3})
    assert tables.part_claims(runs) == pytest.approx({8: 1 - 0.8, 9: 1 - 0.9})
    layered = pd.DataFrame(
        {
            "reader": f"{layers} layer{'s' * (layers > 1)} over sentences",
            "right": dict.fromkeys(ASKING, 0.3 * layers + 0.01 * seed),
        }
        for layers in (1, 2)
        for seed in (1, 2)
    )
    board = tables.scoreboard(rule, pd.DataFrame([{"reader": "Transformer", "right": rule}]), layered, runs)
    assert [*board] == [
        "best rule",
        "2 layers over words",
        "1 layer over sentences",
        "2 layers over sentences, run 1",
        "2 layers over sentences, run 2",
        "1 hop",
        "2 hops",
        "3 hops",
    ]
    assert board["2 layers over sentences, run 2"]["thing"] == pytest.approx(0.62)
    assert board["1 layer over sentences"]["thing"] == pytest.approx(0.315)
    assert tables.layer_claims(layered) == pytest.approx({10: 0.62 - 0.32})


def test_figures_show_what_they_are_given() -> None:
    runs = _runs()
    figure, alt = figures.draw_hops(runs)
    assert len(figure.axes[0].get_lines()) == 4
    assert "dashed" in alt
    figure, _ = figures.draw_looks(runs)
    assert [len(axes.patches) for axes in figure.axes] == [3, 6, 9]
    figure, alt = figures.draw_readings(study.readings(study.new_reader(2)))
    assert len(figure.axes) == 2
    assert "Where is the boat?" in alt
    figure, alt = figures.draw_scoreboard({"1 hop": dict.fromkeys(ASKING, 0.5), "3 hops": dict.fromkeys(ASKING, 0.9)})
    dots = [line.get_xdata().tolist() for line in figure.axes[0].get_lines() if line.get_linestyle() == "None"]
    assert dots == [[50, 90]] * 4
    assert "person 50%" in alt
    question = torch.tensor([4.0, 0.0])
    figure, alt = figures.draw_hop(("a", "b"), ("x", "y"), question, torch.eye(2), 3 * torch.eye(2))
    assert "(4.00, 0.00)" in alt


def test_an_answer_is_a_name_of_the_story_or_nobody() -> None:
    acts = read_errand("Ann took the ring.")
    answer = asked(study.new_reader(1), acts, read_question("Who has the ring?", acts))
    assert answer.answer in {"Ann", "the ring", NOBODY}
    assert len(answer.weights[0]) == 1
