"""A GPT in one file of the learner's own: the lessons' plain pieces, with kept answers in their places.

`my_gpt.py` beside this module is the file with no answer in it. It runs as it is; a comment `# piece: LESSON.NAME` says
which exercise asks for the function below it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module, util
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook import console
from tfbook.course.invariants import TOLERANCE, future_leak, language_model_report
from tfbook.course.solved import answers, under_name
from tfbook.files import expanded, write_text
from tfbook.models.blocks import Config
from tfbook.models.feed_forward import FeedForward
from tfbook.models.gpt import Gpt

PIECE = re.compile(
    r"^# piece: (?P<lesson>\w+)\.(?P<exercise>\w+)\n(?P<source>def .*?)(?=\n\n\n)", re.MULTILINE | re.DOTALL
)
PLAIN = Path(__file__).with_name("my_gpt.py")


# ---- the file ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Piece:
    """A function of the file: what stands there, and whether it is the learner's."""

    name: str  # of the exercise, LESSON.NAME
    source: str
    note: str  # "yours", "the lesson's", or why an answer could not be taken

    @property
    def yours(self) -> bool:
        """Whether the learner wrote it."""
        return self.note == "yours"


def pieces() -> list[Piece]:
    """The functions that exercises ask for, in the order of the file."""
    kept, plain, names = answers(), PLAIN.read_text(encoding="utf-8"), vars(loaded(PLAIN))
    found = PIECE.finditer(plain)
    return [_piece(match, kept.get(match["lesson"], {}).get(match["exercise"]), names) for match in found]


def _piece(match: re.Match[str], answer: str | None, names: dict[str, Any]) -> Piece:
    """An answer takes the place of the plain piece if it is right with the `names` that the file has."""
    name = f"{match['lesson']}.{match['exercise']}"
    if answer is None:
        return Piece(name, match["source"], "the lesson's")
    exercise = getattr(import_module(f"tfbook.lessons.{match['lesson']}.exercises"), match["exercise"])
    names = names | {"rotated": vars(sys.modules[exercise.reference.__module__]).get("rotated")}
    _, verdict = exercise.recall(answer, names)
    if verdict.status == "correct":
        return Piece(name, under_name(answer, match["exercise"]).rstrip(), "yours")
    return Piece(name, match["source"], f"the lesson's; yours, alone in a file, does not pass ({verdict.reason})")


def text_of(found: list[Piece]) -> str:
    """The file with these pieces."""
    sources = {piece.name: f"# {piece.name}: {piece.note}\n{piece.source}" for piece in found}
    plain = PLAIN.read_text(encoding="utf-8")
    return PIECE.sub(lambda match: sources[f"{match['lesson']}.{match['exercise']}"], plain)


def own_command(arguments: list[str] | None = None) -> None:
    """`python -m tfbook own`; an error is one line."""
    parser = argparse.ArgumentParser(
        prog="python -m tfbook own",
        description="Write a GPT of your own in one file: your answers, and the lessons' pieces where one is missing.",
    )
    parser.add_argument("--out", default="my_gpt.py", help="the file; my_gpt.py by default")
    parser.add_argument("--replace", action="store_true", help="replace a file of that name")
    with console.command(parser, ValueError, OSError):
        options = parser.parse_args(arguments)
        write_file(expanded("out", options.out), replace=options.replace)


def write_file(path: Path, *, replace: bool = False) -> None:
    """Writes the file and says whose each piece is. Raises FileExistsError unless an existing one may be replaced."""
    if path.exists() and not replace:
        raise FileExistsError(f"{path} exists; give another name with --out, or --replace")
    found = pieces()
    write_text(path, text_of(found))
    for piece in found:
        print(f"{'●' if piece.yours else '○'} {piece.name:<28} {piece.note}")
    print(f"\n{path}: {sum(piece.yours for piece in found)} of {len(found)} pieces are yours. Next:")
    print(f"  python {path} --check\n  python {path} book.txt --seconds 60")


# ---- the check ---------------------------------------------------------------------------------------------------


def check_file(file: str | Path) -> None:
    """Compares a file with the package and prints a line for each property; exit status 1 when one does not hold."""
    mine, failed = loaded(file), 0
    for name, holds, detail in outcomes(mine):
        failed += not holds
        print(f"{'✓' if holds else '✗'} {name}{f' ({detail})' if detail else ''}")
    if failed:
        sys.exit(1)


def loaded(file: str | Path) -> ModuleType:
    """The file as a module."""
    spec = util.spec_from_file_location("my_gpt", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} cannot be loaded; expected a Python file")
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclass looks itself up
    spec.loader.exec_module(module)
    return module


TEXT = "The cat sat on the mat. The cat's hat was on the mat, too: 12 cats, “meow”, 猫 and 🐈.\n\nThe end.  "


def outcomes(mine: ModuleType) -> Iterator[tuple[str, bool, str]]:
    """Each property: its name, whether it holds, and a detail."""
    tokenizer = mine.Tokenizer.of(TEXT, 30)
    ids = torch.tensor([tokenizer.encode(TEXT)[:24]] * 2)
    ids[1] = ids[1].roll(5)
    yield "the tokenizer gives back every text", tokenizer.decode(tokenizer.encode(TEXT)) == TEXT, ""
    torch.manual_seed(0)
    model = mine.GPT(mine.Size(tokenizer.size, d=32, heads=4, d_ff=48, layers=2, context=32))
    leak = future_leak(model, ids, tokenizer.size)
    yield "no token sees a later one", leak <= TOLERANCE, f"largest change {leak:.0e}"
    package = as_package(model)
    yield compared("logits are those of tfbook's Gpt", model(ids), package(ids))
    yield compared("so is the loss", mine.story_loss(model(ids), ids, -1), _loss(package, ids))
    yield compared(
        "and its gradient", _slope(partial(mine.story_loss, pad=-1), model, ids), _slope(_cross, package, ids)
    )
    for name, violation in language_model_report(package, ids).items():
        yield name, violation <= TOLERANCE, ""


def compared(name: str, found: Tensor, expected: Tensor) -> tuple[str, bool, str]:
    """Whether two tensors are equal but for the order of sums."""
    gap = float((found - expected).detach().abs().max())
    return name, gap <= TOLERANCE, f"largest difference {gap:.0e}"


def _cross(logits: Tensor, ids: Tensor) -> Tensor:
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def _loss(package: Gpt, ids: Tensor) -> Tensor:
    return _cross(package(ids), ids)


def _slope(loss: Callable[..., Tensor], model: Any, ids: Tensor) -> Tensor:
    """The gradient with respect to the embedding."""
    model.zero_grad()
    loss(model(ids), ids).backward()
    return model.embed.weight.grad.clone()


PARTS = {
    "attention.": "mixer.branch.",
    "attention_norm.": "mixer.norm.",
    "feed_forward.": "feed_forward.branch.",
    "feed_forward_norm.": "feed_forward.norm.",
}


def as_package(model: Any) -> Gpt:
    """The package's model with the same weights, whose rotary positions pair halves where the file pairs neighbors."""
    size = model.size
    config = Config(
        d_model=size.d,
        heads=size.heads,
        d_ff=size.d_ff,
        layers=size.layers,
        position="rotary",
        feed_forward=partial(FeedForward, activation=F.gelu),
    )
    package = Gpt(size.vocab, config)
    weights = {_package_name(name): _in_halves(name, weight, size.heads) for name, weight in model.state_dict().items()}
    package.load_state_dict(weights | {"unembed.weight": model.embed.weight})
    return package


def _package_name(name: str) -> str:
    for ours, theirs in PARTS.items():
        name = re.sub(rf"(blocks\.\d+\.){re.escape(ours)}", rf"\1{theirs}", name)
    return name if name.startswith("embed.") else f"stack.{name}"


def _in_halves(name: str, weight: Tensor, heads: int) -> Tensor:
    if not re.search(r"W_[QK]\.", name):
        return weight
    pairs = weight.unflatten(0, (heads, -1, 2))  # (head, pair, neighbor, …)
    return pairs.transpose(1, 2).flatten(0, 2)
