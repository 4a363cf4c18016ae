"""A model's page as Python writes it: one file that needs nothing else, or a refusal in one line.

Its script is tested in a browser (tests/browser).
"""

from __future__ import annotations

import base64
import copy
import gzip
import html
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tfbook import __main__ as course_map, page
from tfbook.attention.efficient import Banded
from tfbook.attention.grouped_query import GroupedQueryAttention
from tfbook.attention.multi_head import MultiHeadAttention
from tfbook.data.stories import words_of
from tfbook.models.adapters import add_lora
from tfbook.models.blocks import Config, PostNorm
from tfbook.models.feed_forward import FeedForward, SwiGLU
from tfbook.models.gpt import GPT2, Gpt
from tfbook.models.language_model import BidirectionalModel
from tfbook.models.norms import RMSNorm
from tfbook.page import Subject, subjects, writing
from tfbook.page.command import page_command
from tfbook.page.weights import LEVELS
from tfbook.pretrain import storyteller
from tfbook.pretrain.__main__ import main as pretrain_command
from tfbook.text.added import AddedToken
from tfbook.text.byte_level import BYTES
from tfbook.text.tokenizer import Tokenizer
from tfbook.text.vocabulary import CharacterVocabulary

pytestmark = pytest.mark.usefixtures("float32")

TINY = replace(GPT2, d_model=8, d_ff=12, heads=2, layers=2, max_length=16, dropout=0.0)
LETTERS = CharacterVocabulary("abc <>/script&$\n")


class Parsed(HTMLParser):
    """The tags of a page with their attributes, the text inside each script by its id, and the words to be read."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self.words = self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts[self.tags[-1][1].get("id") or "code"] = data
        elif self.inside != "style":
            self.words += data


def subject(config: Config = TINY, **changes: Any) -> Subject:
    torch.manual_seed(0)
    given = {"model": Gpt(len(LETTERS), config), "vocabulary": LETTERS, "longest": 16} | changes
    return Subject(**{"title": "A title", "lead": "A lead.", "start": "abc", "other": "cab"} | given)


# ---- a whole page ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shipped() -> str:
    """The page of the storyteller."""
    return page.page_html(page.storyteller())


def test_the_storytellers_page_has_at_most_6_megabytes(shipped: str) -> None:
    assert 5_000_000 < len(shipped.encode()) <= writing.MOST


def test_it_loads_nothing_from_elsewhere(shipped: str) -> None:
    """No address but the name of SVG, which is none, nothing that fetches, and nothing that another page could see."""
    parsed = Parsed(shipped)
    attributes = {name for _, given in parsed.tags for name in given}
    assert attributes & {"src", "href", "srcset", "action", "style", "onclick"} == set()
    assert [tag for tag, _ in parsed.tags if tag in ("link", "iframe", "img", "object", "base", "form")] == []
    assert "://" not in re.sub(r"[A-Za-z0-9+/=]{1000,}", "", shipped).replace("http://www.w3.org/2000/svg", "")
    code = parsed.scripts["code"]
    for word in ("fetch(", "import(", "XMLHttpRequest", "WebSocket", "sendBeacon", "innerHTML", "Storage", "cookie"):
        assert word not in code
    assert "url(" not in shipped
    assert "@import" not in shipped


def test_it_is_a_page_for_every_reader(shipped: str) -> None:
    tags = Parsed(shipped).tags
    assert ("html", {"lang": "en"}) in tags
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in tags
    ids = [given["id"] for _, given in tags if "id" in given]
    assert len(ids) == len(set(ids))
    referred = {name for _, given in tags for key in ("for", "aria-labelledby") if (name := given.get(key))}
    assert referred <= set(ids)


def test_its_script_finds_what_it_looks_for(shipped: str) -> None:
    parsed = Parsed(shipped)
    ids = {given.get("id") for _, given in parsed.tags}
    asked = set(re.findall(r"(?:\$|say)\(\"([\w-]+)\"", parsed.scripts["code"]))
    assert len(asked) > 25
    assert asked <= ids


def unpacked(raw: bytes, shapes: dict[str, list[int]]) -> dict[str, torch.Tensor]:
    """What a page in eight bits holds, read by NumPy: scales of rows, then whole numbers; vectors as halves."""
    found, start = {}, 0
    for name, shape in shapes.items():
        halves = np.frombuffer(raw, "<f2", shape[0], start).astype("float32")
        start += 2 * shape[0]
        found[name] = torch.from_numpy(halves)
        if len(shape) == 2:
            whole = np.frombuffer(raw, "i1", shape[0] * shape[1], start).reshape(shape)
            start += whole.size
            found[name] = torch.from_numpy(whole * halves[:, None])
    assert start == len(raw)
    return found


def test_in_eight_bits_each_weight_is_half_a_step_off_at_most() -> None:
    """A step is the largest weight of the row divided by the levels; the page has half the size."""
    given = subject(replace(TINY, position="rotary"))
    parsed = Parsed(page.page_html(given, bits=8))
    data = json.loads(parsed.scripts["data"])
    assert data["bits"] == 8
    weights = unpacked(base64.b64decode(parsed.scripts["weights"]), data["shapes"])
    for name, weight in weights.items():
        true = given.model.state_dict()[name]
        step = true.abs().amax(-1, keepdim=True) / LEVELS if true.dim() == 2 else 0.002 * true.abs()
        assert ((weight - true).abs() <= 0.51 * step + 1e-3 * true.abs()).all(), name
    assert "Weights are stored in eight bits" in " ".join(parsed.words.split())


def test_the_storytellers_page_in_eight_bits_says_what_it_says_in_sixteen() -> None:
    """And it is small enough for the front page of the web site."""
    told = page.storyteller()
    parsed = Parsed(html_of := page.page_html(told, bits=8))
    assert len(gzip.compress(html_of.encode(), 9)) < 1_950_000
    rough = copy.deepcopy(told.model).float().eval()
    data = json.loads(parsed.scripts["data"])
    weights = unpacked(base64.b64decode(parsed.scripts["weights"]), data["shapes"])
    rough.load_state_dict(weights | {"unembed.weight": weights["embed.weight"]})
    ids = torch.tensor([told.vocabulary.encode(words_of(told.start))])
    with torch.no_grad():
        true, found = (model(ids).log_softmax(-1) for model in (told.model.float().eval(), rough))
    assert (true.exp() * (true - found)).sum(-1).mean() < 1e-3


def test_other_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="bits is 4; expected 8 or 16"):
        page.page_html(subject(), bits=4)


def test_its_weights_are_the_models_in_half_precision(shipped: str) -> None:
    parsed = Parsed(shipped)
    data, raw = json.loads(parsed.scripts["data"]), base64.b64decode(parsed.scripts["weights"])
    numbers = torch.from_numpy(np.frombuffer(raw, dtype="<f2").astype("float32"))
    model = storyteller.load_storyteller().model.cpu()
    sizes = {"layers": 4, "heads": 6, "width": 192, "longest": 128, "epsilon": 1e-5, "rotaryBase": 10_000.0}
    assert data["sizes"] == sizes
    assert len(numbers) == model.parameter_count()
    start = 0
    for name, shape in data["shapes"].items():
        weight = model.state_dict()[name]
        assert tuple(shape) == weight.shape
        assert torch.equal(numbers[start : start + weight.numel()], weight.flatten())
        start += weight.numel()
    assert start == len(numbers)


def test_its_texts_are_words_of_the_world(shipped: str) -> None:
    """And differ in one name, at two places."""
    data = json.loads(Parsed(shipped).scripts["data"])
    first, second = (words_of(data[name]) for name in ("start", "other"))
    assert {*first, *second} <= {*data["vocabulary"]["tokens"]}
    assert {(a, b) for a, b in zip(first, second, strict=True) if a != b} == {("Lily", "Mia")}


def test_names_and_tokens_are_text_whatever_they_hold() -> None:
    """No tag of a title's, a lead's or a token's own, and no `$` that the template would read."""
    hostile = "</script><b>&amp; $data ${title}"
    parsed = Parsed(page.page_html(subject(title=hostile, lead=hostile, start=hostile, other="</script>")))
    plain = Parsed(page.page_html(subject()))
    assert [tag for tag, _ in parsed.tags] == [tag for tag, _ in plain.tags]
    assert parsed.words.count(hostile) == 3
    data = json.loads(parsed.scripts["data"])
    assert (data["start"], data["other"]) == (hostile, "</script>")
    assert data["vocabulary"] == {"kind": "characters", "tokens": list(LETTERS.tokens)}
    assert parsed.scripts["code"] == plain.scripts["code"]


def test_byte_pairs_are_written_letter_by_byte() -> None:
    tokenizer = Tokenizer.learn(["über über"], 259)
    data = subjects.described(tokenizer)
    assert [token.encode("latin-1") for token in data["tokens"]] == [tokenizer.tokens[i] for i in range(259)]
    assert data["merges"] == tokenizer.merges


# ---- refusals --------------------------------------------------------------------------------------------------------

CONFIGS: dict[str, tuple[Config, str]] = {
    "sinusoidal": (replace(TINY, position="sinusoidal"), "its positional encoding is a Sinusoidal; a page computes Le"),
    "ALiBi": (replace(TINY, position="ALiBi"), "its positional encoding is a ALiBi; a page computes Learned or Rotary"),
    "relative": (replace(TINY, position="relative"), "its positional encoding is a Relative; a page computes Learned"),
    "none": (
        replace(TINY, position="none"),
        "its positional encoding is a Position; a page computes Learned or Rotary",
    ),
    "RMSNorm": (replace(TINY, norm=RMSNorm), "its last norm is a RMSNorm; a page computes LayerNorm only"),
    "PostNorm": (replace(TINY, residual=PostNorm), "its last norm is a Identity; a page computes LayerNorm only"),
    "SwiGLU": (replace(TINY, feed_forward=SwiGLU), "a feed-forward network is a SwiGLU; a page computes FeedForward"),
    "ReLU": (
        replace(TINY, feed_forward=FeedForward),
        "the activation is <function relu at .*>; a page knows GPT-2's GELU",
    ),
    "GELU": (
        replace(TINY, feed_forward=partial(FeedForward, activation=F.gelu)),
        "the activation is <built-in function gelu>; a page knows GPT-2's GELU, tanh's approximation",
    ),
    "grouped": (
        replace(TINY, mixer=partial(GroupedQueryAttention, groups=1)),
        "a mixer is a GroupedQueryAttention; a page computes MultiHeadAttention only",
    ),
    "banded": (
        replace(TINY, mixer=partial(MultiHeadAttention, implementation=Banded(4))),
        "attention is computed by Banded.*; a page computes it exactly, by a softmax",
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_what_the_script_does_not_compute_is_refused(name: str, tmp_path: Path) -> None:
    config, message = CONFIGS[name]
    with pytest.raises(ValueError, match=message):
        page.write_page(subject(config), tmp_path / "model.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("position", ["learned", "rotary"])
def test_positions_are_a_matrix_or_the_base_of_angles(position: str) -> None:
    data = json.loads(Parsed(page.page_html(subject(replace(TINY, position=position)))).scripts["data"])
    assert data["sizes"]["rotaryBase"] == (10_000.0 if position == "rotary" else None)
    assert ("stack.position.embedding.weight" in data["shapes"]) is (position == "learned")


def changed(change: Callable[[Gpt], object]) -> Subject:
    given = subject()
    change(given.model)
    return given


def untie(model: Gpt) -> None:
    model.unembed.weight = torch.nn.Parameter(model.embed.weight.clone())


def fill(number: float) -> Callable[[Gpt], object]:
    return lambda model: model.stack.norm.weight.data.fill_(number)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (untie, "the output matrix is not the embedding; a page has one matrix for both"),
        (lambda model: setattr(model, "mask", None), "its mask is a NoneType; a page computes Causal only"),
        (partial(add_lora, rank=2, alpha=2.0), "a linear layer is a LoraLinear; a page computes Linear only"),
        (fill(float("nan")), "stack.norm.weight holds NaN or a number beyond 65,504, where half precision ends"),
        (fill(70_000.0), "stack.norm.weight holds NaN or a number beyond 65,504, where half precision ends"),
    ],
    ids=["untied", "mask", "lora", "nan", "beyond half precision"],
)
def test_a_changed_model_is_refused(change: Callable[[Gpt], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        page.page_html(changed(change))


def test_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="the model is a BidirectionalModel; a page computes Gpt only"):
        page.page_html(subject(model=BidirectionalModel(len(LETTERS), TINY)))


def test_a_readers_own_part_is_refused() -> None:
    """Its JavaScript would compute the package's."""

    class Mine(FeedForward):
        pass

    with pytest.raises(ValueError, match="a feed-forward network is a Mine; a page computes FeedForward only"):
        page.page_html(subject(replace(TINY, feed_forward=Mine)))


def test_a_large_model_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "model.html").write_text("before")
    large = subject(replace(TINY, d_model=256, d_ff=1024, heads=4, layers=3))
    message = r"the page would have 6\.\d MB; expected at most 6 MB, which is a model of about 2.2 million parameters"
    with pytest.raises(ValueError, match=message):
        page.write_page(large, tmp_path / "model.html")
    assert (tmp_path / "model.html").read_text() == "before"


TOKENS = dict(enumerate(BYTES))


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (Tokenizer(TOKENS, [], pattern=r"\s+|\S+"), "the tokenizer has the pattern .*; a page knows GPT-2's only"),
        (Tokenizer(TOKENS, [], {"<s>": 256}), "the tokenizer has added tokens, whole chunks or a template"),
        (
            Tokenizer(TOKENS, [], added=[AddedToken(content="x", id=256)]),
            "the tokenizer has added tokens, whole chunks",
        ),
        (Tokenizer(TOKENS, [], whole_chunks=True), "the tokenizer has added tokens, whole chunks or a template"),
    ],
    ids=["pattern", "special", "added", "whole chunks"],
)
def test_a_tokenizer_with_more_than_merges_is_refused(tokenizer: Tokenizer, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        subjects.described(tokenizer)


# ---- the command -----------------------------------------------------------------------------------------------------

TEXT = "Wer reitet so spät durch Nacht und Wind? Es ist der Vater mit seinem Kind.\n" * 12
SMALL = ["--layers=1", "--heads=2", "--d-model=8", "--context=8", "--batch=2", "--steps=2", "--warmup=1", "--sample=1"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a storyteller that is quick to write."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    monkeypatch.setattr("tfbook.pretrain.run.matmul_peak", lambda: 1e9)
    monkeypatch.setattr(storyteller, "load_storyteller", lambda: storyteller.untrained("draft"))
    return tmp_path


def pretrain(*options: str) -> None:
    pretrain_command([*SMALL, "--corpus", "text.txt", "--out", "run", *options])


def refused(line: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The sentence with which the command refuses a line, its only one."""
    with pytest.raises(SystemExit) as end:
        page_command(line)
    errors = capsys.readouterr().err
    assert end.value.code == 2
    assert errors.count("\n") == 1, errors
    return errors.rpartition("error: ")[2].strip()


def test_it_writes_the_storyteller(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page_command([])
    assert re.fullmatch(r"model\.html: 0\.\d MB; open it in a browser\n", capsys.readouterr().out)
    assert "A language model in a page" in (folder / "model.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "kind", "unit"),
    [(["--vocab=0"], "characters", "One character"), (["--vocab=270", "--position=rotary"], "bytes", "One token")],
    ids=["characters", "byte pairs"],
)
def test_it_writes_a_run_of_ones_own(folder: Path, options: list[str], kind: str, unit: str) -> None:
    """With texts of the run's validation part, and the length that it was trained with."""
    pretrain(*options)
    page_command(["run", "--out", "new/mine.html"])
    text = (folder / "new" / "mine.html").read_text(encoding="utf-8")
    data = json.loads(Parsed(text).scripts["data"])
    assert (data["vocabulary"]["kind"], data["sizes"]["longest"]) == (kind, 8)
    assert "A language model of text.txt" in text
    assert unit in text
    assert data["start"]
    assert data["start"] + data["other"] in TEXT
    assert data["start"] != data["other"]


@pytest.mark.parametrize("position", ["sinusoidal", "relative", "ALiBi", "none"])
def test_a_run_that_it_cannot_compute_is_refused_in_a_line(
    position: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrain("--position", position)
    capsys.readouterr()
    assert refused(["run"], capsys).startswith("its positional encoding is a")
    assert not (folder / "model.html").exists()


def test_what_is_no_run_or_no_path_is_refused_in_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "damaged").mkdir()
    (folder / "damaged" / "options.json").write_text("{")
    (folder / "half").mkdir()
    (folder / "half" / "options.json").write_text("{}")
    expected = "expected the folder of a run of python -m tfbook.pretrain"
    assert refused(["nowhere"], capsys) == f"RUN is 'nowhere'; {expected}"
    assert refused(["text.txt"], capsys) == f"RUN is 'text.txt'; {expected}"
    assert refused(["."], capsys) == f"RUN is '.'; {expected}"
    assert refused([""], capsys) == "RUN is ''; expected a path"
    assert "does not hold the options of a run" in refused(["damaged"], capsys)
    assert "No such file" in refused(["half"], capsys)
    assert refused(["--out="], capsys) == "out is ''; expected a path"
    assert refused(["--out", "~nobody_x/a"], capsys).startswith("out is '~nobody_x/a'; expected a path (")
    for path in ("damaged", "text.txt/model.html", "a" * 300):
        assert refused(["--out", path], capsys).startswith(f"out is {path!r}, which cannot be written: ")
    assert "null" in refused(["--out", "a\0b"], capsys)


def test_a_failed_write_leaves_the_page_that_was_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page_command([])
    before = (folder / "model.html").read_bytes()
    monkeypatch.setattr("os.replace", lambda *paths: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert "No space left on device" in refused([], capsys)
    assert (folder / "model.html").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["model.html", "text.txt"]


def test_tfbook_runs_the_command_that_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And without a name, or with an option, it is the map that it always was."""
    course_map.course_command(["page", "--out", "named.html"])
    assert (folder / "named.html").exists()
    capsys.readouterr()
    course_map.course_command([])
    shown = capsys.readouterr().out
    course_map.map_command([])
    assert capsys.readouterr().out == shown
    assert "The Transformer" in shown
    for line, code, said in ((["--help"], 0, "page"), (["nonsense"], 2, "unrecognized arguments: nonsense")):
        with pytest.raises(SystemExit) as end:
            course_map.course_command(line)
        output = capsys.readouterr()
        assert end.value.code == code
        assert said in output.out + output.err


def test_facts_and_unit_are_the_models() -> None:
    text = html.unescape(Parsed(page.page_html(subject())).words)
    assert "One character" in text
    count = subject().model.parameter_count()
    assert f"The model: {count:,} parameters, 2 blocks of 2 heads, vectors of 8 numbers, a vocabulary of " in text
    assert "at most 16 tokens at once" in text
