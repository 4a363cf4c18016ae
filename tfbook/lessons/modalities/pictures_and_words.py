"""Images with texts: a small CLIP on scenes and their captions, its training, and what it is asked.

Shapes: image, text; scene; word; time (tokens, padded).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from tfbook import runtime, training
from tfbook.course.captioning import images_of
from tfbook.data.download import File, fetch
from tfbook.data.scenes import COLORS, GROUNDS, KINDS, RARE, Scene, SceneObject, Scenes
from tfbook.data.scenes.corpus import drawn_scenes
from tfbook.models.blocks import Config
from tfbook.models.clip import Clip, ImageTower, TextTower
from tfbook.models.vit import VitConfig
from tfbook.training.contrastive import contrastive_loss

SIDE = 48
SCENES = Scenes(side=SIDE)
ALONE = replace(SCENES, counts=(1,))
IN_TWOS = replace(SCENES, counts=(2,))
D_SHARED = 48
PICTURES = VitConfig(d_model=64, heads=4, d_ff=128, layers=2, height=SIDE, width=SIDE, patch=8, tokens=0)
TEXTS = Config(d_model=48, heads=4, d_ff=96, layers=2, max_length=16, position="learned")
WEIGHTS = "vision/clip.safetensors"  # in data/, half precision
TRAINED_ON = 10_000  # scenes
TRAINED: dict[str, Any] = {"steps": 1800, "size": 64, "lr": 1.5e-3}
SHIFT = 2  # pixels by which images move in training, up or down and to either side

# ---- pairs -----------------------------------------------------------------------------------------------------------


class Pairs(NamedTuple):
    """Images and texts, and which text is true of which image."""

    images: Float[Tensor, "image 3 height width"]
    ids: Int64[Tensor, "text time"]
    lengths: Int64[Tensor, " text"]
    same: Bool[Tensor, "image text"]

    def to(self, device: torch.device) -> Pairs:
        """The same on a device."""
        return Pairs(*(part.to(device) for part in self))


def text_ids(texts: Sequence[str]) -> tuple[Int64[Tensor, "text time"], Int64[Tensor, " text"]]:
    """The ids of the words of each text, padded, and their number.

    Raises ValueError for a text without words, with more than 16, or with one that no caption has.
    """
    rows, known = [text.lower().replace(",", " ,").split() for text in texts], SCENES.vocabulary
    for text, row in zip(texts, rows, strict=True):
        unknown = [word for word in row if word not in known]
        if unknown or not 0 < len(row) <= TEXTS.max_length:
            found = f"{text!r} has the unknown word {unknown[0]!r}" if unknown else f"{text!r} has {len(row)} words"
            raise ValueError(f"{found}; expected 1 to {TEXTS.max_length} of: {' '.join(known.tokens[4:])}")
    ids = [torch.tensor(known.encode(row)) for row in rows]
    return pad_sequence(ids, batch_first=True), torch.tensor([len(row) for row in rows])


def told(scene: Scene) -> list[str]:
    """The captions of a scene as texts, the standard one first."""
    return [str(caption) for caption in scene.captions]


def true_of(known: Sequence[Sequence[str]], texts: Sequence[str]) -> Bool[Tensor, "image text"]:
    """Which texts are among the captions that are known of each image."""
    return torch.tensor([[text in own for text in texts] for own in map(set, known)])


def pairs_of(scenes: Sequence[Scene], texts: Sequence[str]) -> Pairs:
    """All scenes with all texts."""
    return Pairs(images_of(scenes), *text_ids(texts), true_of([told(scene) for scene in scenes], texts))


def batches(
    scenes: Sequence[Scene], size: int, seed: int, *, foils: Callable[[Scene], Sequence[str]] | None = None
) -> Callable[[int], Pairs]:
    """Maps a step to `size` scenes, each with one of its captions at random, and then the `foils` of each."""
    images, known = images_of(scenes), [told(scene) for scene in scenes]
    wrong = [[] if foils is None else foils(scene) for scene in scenes]

    def batch(step: int) -> Pairs:
        rng = random.Random(f"{seed} {step}")
        rows = rng.sample(range(len(scenes)), size)
        texts = [rng.choice(known[row]) for row in rows] + [text for row in rows for text in wrong[row]]
        moves = [(rng.randint(-SHIFT, SHIFT), rng.randint(-SHIFT, SHIFT)) for _ in rows]
        moved = torch.stack([images[row].roll(move, (1, 2)) for row, move in zip(rows, moves, strict=True)])
        return Pairs(moved, *text_ids(texts), true_of([known[row] for row in rows], texts))

    return batch


CLOSE = 32  # pixels of the side of a close-up


def looks_of(*, held_back: bool = False) -> list[tuple[str, str]]:
    """Kind and color of each look in training, or of those that are held back."""
    return [look for look in product(KINDS, COLORS) if (look in RARE) == held_back]


def close_ups(split: str, count: int) -> list[Scene]:
    """Small images of one large object each: the looks that "train" and "test" share, or the "rare" ones held back."""
    rng, looks = random.Random(f"close-ups {split}"), looks_of(held_back=split == "rare")
    things, grounds = [], []
    for _ in range(count):
        kind, color = rng.choice(looks)
        x, y, size = rng.uniform(0.4, 0.6), rng.uniform(0.4, 0.6), rng.uniform(0.5, 0.75)
        things.append([SceneObject(kind, color, x, y, size, rng.uniform(-12, 12))])
        grounds.append(rng.choice(list(GROUNDS)))
    return drawn_scenes(things, grounds, [rng.getrandbits(32) for _ in things], CLOSE)


# ---- the model -------------------------------------------------------------------------------------------------------

ContrastiveLoss = Callable[[Tensor, Tensor], Any]  # of scores and `same`


def clip(seed: int = 1, *, side: int = SIDE) -> Clip:
    """A new model, for images of this side."""
    runtime.seed(seed)
    pictures = replace(PICTURES, height=side, width=side)
    return Clip(ImageTower(D_SHARED, pictures), TextTower(len(SCENES.vocabulary), D_SHARED, TEXTS))


def train_clip(
    model: Clip,
    scenes: Sequence[Scene],
    *,
    loss: ContrastiveLoss = contrastive_loss,
    seed: int = 1,
    steps: int = 1800,
    size: int = 64,
    lr: float = 1.5e-3,
    foils: Callable[[Scene], Sequence[str]] | None = None,
) -> training.History:
    """Trains on scenes with `loss(scores, same)`: AdamW, a short warm-up and a cosine down to 2%."""

    def pair_loss(model: Clip, pairs: Pairs) -> Any:
        return loss(model(pairs.images, pairs.ids, pairs.lengths), pairs.same)

    model.to(runtime.device())
    history = training.fit(model, pair_loss, batches(scenes, size, seed, foils=foils), recipe(steps, lr))
    model.cpu()
    return history


def recipe(steps: int, lr: float) -> training.Recipe:
    """AdamW with a short warm-up and a cosine down to 2%."""
    schedule = training.warmup_cosine(min(50, steps // 4), 0.02)
    return training.Recipe(steps=steps, lr=lr, schedule=schedule, weight_decay=0.05, evaluate_every=steps)


def trained_clip(scenes: Sequence[Scene], *, seed: int = 1, **options: Any) -> tuple[Clip, training.History]:
    """A new model for images of this size, and its history; `options` are those of `train_clip`."""
    model = clip(seed, side=scenes[0].image.shape[-1])
    return model, train_clip(model, scenes, seed=seed, **options)


def save(model: Clip) -> None:
    """Writes the weights in half precision to the checkout's data/."""
    from safetensors.torch import save_file

    path = Path(__file__).parents[3] / "data" / WEIGHTS
    halves = {name: value.half() if value.is_floating_point() else value for name, value in model.state_dict().items()}
    save_file({name: value.contiguous() for name, value in halves.items()}, path)


def shipped_clip() -> Clip:
    """The trained model that ships, on the CPU, in eval mode."""
    from safetensors.torch import load_file

    model = clip()
    model.load_state_dict(load_file(fetch(File(path=WEIGHTS))))
    return model.eval()


# ---- questions -------------------------------------------------------------------------------------------------------

Score = Callable[[Sequence[Scene], Sequence[str]], Tensor]  # (image, text), larger for what fits better


def scorer(model: Clip) -> Score:
    """The model's cosines."""

    @torch.no_grad()
    def score(scenes: Sequence[Scene], texts: Sequence[str]) -> Tensor:
        return model.image_vectors(images_of(scenes)) @ model.text_vectors(*text_ids(texts)).T

    return score


def candidates(count: int = 100, *, split: str = "test", scenes: Scenes = SCENES) -> list[Scene]:
    """The first scenes of a split whose standard captions differ, the first `count` of them."""
    found: dict[str, Scene] = {}
    for scene in scenes.take(split, 2 * count):
        found.setdefault(str(scene), scene)
    return [*found.values()][:count]


def retrieved(score: Score, scenes: Sequence[Scene]) -> dict[str, float]:
    """How often an image's own caption scores highest among those of all scenes, and a caption's own image."""
    scores, own = score(scenes, [str(scene) for scene in scenes]), torch.arange(len(scenes))
    captions, images = ((scores.argmax(dim=dim) == own).float().mean() for dim in (1, 0))
    return {"caption found": float(captions), "image found": float(images)}


def retrieved_in_sets(score: Score, *, sets: int = 4, count: int = 100, split: str = "test") -> dict[str, float]:
    """The mean of `retrieved` over several sets of `count` scenes, in each of which the standard captions differ."""
    scenes = candidates(sets * count, split=split)
    found = [retrieved(score, scenes[first : first + count]) for first in range(0, sets * count, count)]
    return {name: sum(each[name] for each in found) / sets for name in found[0]}


def swaps_of(scene: Scene) -> dict[str, str]:
    """False captions of a scene of two objects: a color that is not there, the colors swapped, the places swapped.

    Where both have one color, it cannot be swapped.
    """
    one, other = (
        scene.objects[number] for number in dict.fromkeys(n for n in scene.captions[0].named if n is not None)
    )
    near = str(scene).removeprefix(str(one)).removesuffix(str(other))
    absent = next(color for color in COLORS if color not in (one.color, other.color))
    swaps = {"another color": f"{replace(one, color=absent)}{near}{other}", "places swapped": f"{other}{near}{one}"}
    if one.color != other.color:
        swaps["colors swapped"] = f"{replace(one, color=other.color)}{near}{replace(other, color=one.color)}"
    return swaps


def foils_of(scene: Scene) -> list[str]:
    """Captions that teach order: the swaps of a scene of two objects, and nothing for others."""
    return [text for kind, text in swaps_of(scene).items() if "swapped" in kind] if len(scene.objects) == 2 else []


def told_apart(score: Score, scenes: Sequence[Scene]) -> dict[str, float]:
    """How often the true caption scores higher than each false one, a tie being half; a coin gets 0.5."""
    wins: dict[str, list[float]] = {}
    for scene in scenes:
        swaps = swaps_of(scene)
        own, *others = score([scene], [str(scene), *swaps.values()])[0].tolist()
        for kind, other in zip(swaps, others, strict=True):
            wins.setdefault(kind, []).append(0.5 if abs(own - other) < 1e-6 else float(own > other))
    return {kind: sum(won) / len(won) for kind, won in wins.items()}


LOOKS = list(product(COLORS, KINDS))


def zero_shot(score: Score, scenes: Sequence[Scene]) -> dict[str, float]:
    """How often the true one of 48 prompts "a {color} {kind}" is best for one object; and its kind, over all colors."""
    scores = score(scenes, [f"a {color} {kind}" for color, kind in LOOKS])
    looks = torch.tensor([LOOKS.index((scene.objects[0].color, scene.objects[0].kind)) for scene in scenes])
    kinds = scores.unflatten(1, (len(COLORS), len(KINDS))).amax(dim=1).argmax(dim=1)
    return {
        "look": float((scores.argmax(dim=1) == looks).float().mean()),
        "kind": float((kinds == looks % len(KINDS)).float().mean()),
    }


def asked_everything(score: Score) -> dict[str, float]:
    """Every number that the lesson has about a model, on scenes that no training saw."""
    found = retrieved_in_sets(score) | told_apart(score, IN_TWOS.take("test", 200))
    for split in ("test", "rare"):
        found |= {f"{name}, {split}": share for name, share in zero_shot(score, ALONE.take(split, 200)).items()}
    return {name: round(share, 3) for name, share in found.items()}


def plain_loss(scores: Float[Tensor, "image text"], same: Bool[Tensor, "image text"]) -> Float[Tensor, ""]:
    """The package's loss as one number."""
    return contrastive_loss(scores, same).mean


def plain_chances(
    images: Float[Tensor, "image d"], texts: Float[Tensor, "text d"], scale: Float[Tensor, ""]
) -> Float[Tensor, "image text"]:
    """The probability of each text for each image."""
    return (scale * F.normalize(images, dim=1) @ F.normalize(texts, dim=1).T).softmax(dim=1)
