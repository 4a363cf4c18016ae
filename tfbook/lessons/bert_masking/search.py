"""The course's own text as passages, questions that a student may ask, and search by counted words or by MiniLM."""

from __future__ import annotations

import ast
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from tfbook.course.experiments import experiment
from tfbook.course.lessons import LESSONS, Lesson
from tfbook.interop.hub import load_minilm
from tfbook.models.sentence_encoder import Found, SemanticIndex

PACKAGE = Path(__file__).parents[2]
NOTEBOOKS = PACKAGE.parent / "notebooks"  # in a clone
SHORTEST, CUT = 150, 400  # characters of a passage
OWN = 8  # the lesson that searches


class Passage(NamedTuple):
    """A paragraph, labeled with its lesson's number and title, or a docstring, labeled with its module."""

    lesson: str
    text: str


def course_passages(notebooks: Path = NOTEBOOKS) -> list[Passage]:
    """The paragraphs of the other lessons' main sections; without a clone, the package's docstrings instead."""
    lessons = [lesson for lesson in LESSONS if lesson.number != OWN]
    found = [passage for lesson in lessons for passage in _paragraphs(lesson, notebooks / f"{lesson.name}.ipynb")]
    return found or list(_docstrings())


def _paragraphs(lesson: Lesson, path: Path) -> Iterator[Passage]:
    if not path.is_file():
        return
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for source in ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"):
        if re.search(r"^## (What to remember|Going further)", source, re.MULTILINE):
            return
        for block in re.split(r"\n\s*\n", re.sub(r"^### Exercise.*", "", source, flags=re.DOTALL | re.MULTILINE)):
            text = _plain(block)
            if len(text) >= SHORTEST and re.match(r"[A-Z“*]", block):
                yield Passage(f"{lesson.number:02} · {lesson.title}", text)


def _plain(markdown: str) -> str:
    """The text without links and emphasis, on one line: whole sentences up to `CUT` characters, at least one."""
    text = " ".join(re.sub(r"\*|`|\[([^\]]*)\]\([^)]*\)", r"\1", markdown).split())
    sentences = re.split(r"(?<=[.?!:]) ", text)
    kept = sentences[:1]
    for sentence in sentences[1:]:
        if len(" ".join([*kept, sentence])) > CUT:
            break
        kept.append(sentence)
    return " ".join(kept)


def _docstrings() -> Iterator[Passage]:
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(("tfbook", *path.relative_to(PACKAGE).with_suffix("").parts))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef | ast.FunctionDef):
                continue
            text = ast.get_docstring(node) or ""
            if len(text) >= SHORTEST:
                yield Passage(f"{module}.{node.name}", _plain(text))


class WordIndex:
    """Search by counted words: the cosine of tf–idf vectors, in which rare words weigh more.

    A word that occurs in n of N texts has the weight ln(N / n) (Spärck Jones, 1972). Raises ValueError when there are
    no texts.
    """

    def __init__(self, texts: Sequence[str]):
        if not texts:
            raise ValueError("texts is empty; expected at least one to search")
        self.texts = tuple(texts)
        counts = [Counter(_words(text)) for text in texts]
        holding = Counter(word for each in counts for word in each)
        self.weight = {word: math.log(len(texts) / n) for word, n in holding.items()}
        self.vectors = [self._vector(each) for each in counts]

    def nearest(self, query: str, count: int = 3) -> list[Found]:
        """The `count` texts with the largest cosines, in the format of `SemanticIndex.nearest`."""
        asked = self._vector(Counter(_words(query)))
        scores = [sum(share * vector.get(word, 0.0) for word, share in asked.items()) for vector in self.vectors]
        best = sorted(range(len(scores)), key=lambda i: -scores[i])[:count]
        return [Found(scores[i], i, self.texts[i]) for i in best]

    def _vector(self, counts: Counter[str]) -> dict[str, float]:
        weighted = {word: n * self.weight.get(word, 0.0) for word, n in counts.items()}
        length = math.sqrt(sum(value**2 for value in weighted.values())) or 1.0
        return {word: value / length for word, value in weighted.items()}


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


# ---- stored: search --------------------------------------------------------------------------------------------------


# Questions, and the numbers of the lessons that answer them; written before any search was tried.
QUESTIONS: dict[str, tuple[int, ...]] = {
    "Why are long sentences translated badly if all must fit into one vector?": (1,),
    "How can I see which source word a translated word came from?": (1,),
    "Why divide the products by a root before the softmax?": (2,),
    "What goes wrong when nearly all of the weight is on one item?": (2,),
    "How do I keep a word from looking at the words that come after it?": (3,),
    "Why use several heads and not one big one?": (3,),
    "What happens if I shuffle the words and nothing tells their order?": (3, 4),
    "How can a model read texts longer than those it was trained on?": (4,),
    "Why does the learning rate rise slowly at the beginning?": (5,),
    "What is the sense of adding a layer's input to its output?": (5,),
    "Where should the normalization stand in a block?": (5,),
    "How do I search for a good translation without trying all of them?": (6,),
    "Why does generated text repeat itself?": (6,),
    "How do I avoid computing the keys of old words again and again?": (6,),
    "What does temperature do to the choice of the next word?": (6, 9),
    "How are rare words cut into pieces?": (7,),
    "Does an emoji or a Chinese letter break the tokenizer?": (7,),
    "How good is a language model, as one number?": (7, 9),
    "What loss should an untrained model have?": (9,),
    "Can a model tell stories without contradicting itself?": (9,),
}
EXAMPLE = "How can I make generated text less boring?"


@runtime_checkable
class Index(Protocol):
    """Anything that can be searched with `nearest`."""

    def nearest(self, query: str, count: int = 3) -> list[Found]:
        """The `count` nearest texts, the nearest first."""
        ...


def hit_rates(index: Index, passages: Sequence[Passage]) -> dict[str, float]:
    """Share of `QUESTIONS` for which a passage of a lesson that answers them is found first, or among three."""
    found = {"first": 0, "among three": 0}
    for question, lessons in QUESTIONS.items():
        right = [int(passages[each.place].lesson[:2]) in lessons for each in index.nearest(question)]
        found["first"] += right[0]
        found["among three"] += any(right)
    return {name: count / len(QUESTIONS) for name, count in found.items()}


@experiment
def search() -> list[dict[str, Any]]:
    """Hit rates of search by counted words and by MiniLM, whose weights must be available."""
    passages = course_passages()
    texts = [passage.text for passage in passages]
    indices: dict[str, Index] = {"counted words": WordIndex(texts), "MiniLM": SemanticIndex(load_minilm(), texts)}
    return [
        {"by": name, "passages": len(texts), **hit_rates(index, passages), "answers": answers(index, passages, EXAMPLE)}
        for name, index in indices.items()
    ]


def answers(index: Index, passages: Sequence[Passage], question: str) -> list[str]:
    """The lessons and first words of the two nearest passages."""
    nearest = (passages[each.place] for each in index.nearest(question, count=2))
    return [f"{passage.lesson}: {passage.text[:150]} …" for passage in nearest]
