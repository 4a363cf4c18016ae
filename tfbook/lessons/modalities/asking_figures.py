"""Figures of lesson 19's questions about pictures: the joined sequence with its mask, and a scene with its answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tfbook.plot.house import COLORS, GREEN, INK, SOFT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tfbook.data.scenes import Scene
    from tfbook.lessons.modalities.asking_pictures import Answered

_SEQUENCE = (*(f"tile {n}" for n in (1, 2, 3, 4)), *["where", "is", "the", "ring", "?"], "top", "left")
_NEXT = ("top", "left", ".")  # guessed at the question mark and at the answer's words
_KNOWN = 9  # tiles and words of the question


def draw_joined() -> Figure:
    """Tiles, question and answer as one sequence: who sees whom, and where the loss is counted."""
    import matplotlib.pyplot as plt

    count = len(_SEQUENCE)
    kinds = np.array([0] * 4 + [1] * 5 + [2] * 2)
    sees = np.tril(np.ones((count, count), dtype=bool))
    sees[:, :_KNOWN] = True
    figure, axes = plt.subplots(figsize=(8.2, 4.9), layout="constrained")
    tints = (COLORS[0], COLORS[1], GREEN)
    for row in range(count):
        for column in range(count):
            face = tints[kinds[column]] if sees[row, column] else "none"
            axes.add_patch(plt.Rectangle((column, row), 0.92, 0.92, facecolor=face, edgecolor=SOFT, alpha=0.75))
    for number, word in enumerate(_SEQUENCE):
        axes.text(number + 0.46, -0.25, word, ha="center", va="bottom", fontsize=9, color=INK)
        axes.text(-0.25, number + 0.46, word, ha="right", va="center", fontsize=9, color=INK)
    for row, word in enumerate(_NEXT, start=_KNOWN - 1):
        axes.text(count + 0.25, row + 0.46, f"→ {word}", ha="left", va="center", fontsize=10, color=INK)
    axes.text(count + 0.25, _KNOWN - 1.4, "loss on", ha="left", va="center", fontsize=9, color=INK)
    axes.set(xlim=(-1.6, count + 1.9), ylim=(count + 0.1, -1.1), xticks=[], yticks=[], aspect="equal")
    axes.set_title("Tiles and question see each other; the answer sees what is before it")
    axes.axis("off")
    figure.set_label("schematic")
    return figure


def draw_answers(scene: Scene, questions: Sequence[str], answers: Sequence[Answered]) -> Figure:
    """A scene, and beside it each question with the answer and its probability."""
    import matplotlib.pyplot as plt

    figure, (picture, texts) = plt.subplots(
        1, 2, figsize=(8.2, 3.2), layout="constrained", gridspec_kw={"width_ratios": (1, 1.5)}
    )
    picture.imshow(scene.image.permute(1, 2, 0), interpolation="nearest")
    picture.set(xticks=[], yticks=[])
    picture.grid(visible=False)
    for middle in (picture.axhline, picture.axvline):
        middle(scene.image.shape[-1] / 2 - 0.5, color="white", linewidth=1)
    texts.set(xlim=(0, 1), ylim=(len(questions), -0.2))
    texts.axis("off")
    for row, (question, one) in enumerate(zip(questions, answers, strict=True)):
        texts.text(0, row + 0.5, question, va="center", fontsize=10.5, color=INK)
        texts.text(0.56, row + 0.5, one.text, va="center", fontsize=10.5, color=COLORS[0], fontweight="bold")
        texts.text(1, row + 0.5, f"{one.chance:.0%}", va="center", ha="right", fontsize=10.5, color=INK)
    figure.suptitle("Your model answers in words", x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure
