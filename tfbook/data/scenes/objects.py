"""The objects of a scene: what each is, its color, where it stands, how large it is."""

from __future__ import annotations

from dataclasses import dataclass

from tfbook.data.scenes.shapes import KINDS

COLORS = {  # red, green, blue from 0 to 1
    "red": (0.84, 0.15, 0.16),
    "yellow": (0.98, 0.83, 0.16),
    "green": (0.13, 0.60, 0.28),
    "blue": (0.12, 0.36, 0.86),
    "purple": (0.55, 0.20, 0.68),
    "white": (0.97, 0.97, 0.97),
}
SMALLEST, LARGEST = 0.1, 0.8  # sizes that a scene may have; those of the corpus are between


@dataclass(frozen=True)
class SceneObject:
    """An object: `SceneObject("fish", "red", x=0.3, y=0.6)`.

    `x` and `y` are its center and `size` its width, all as shares of the image's side; y grows downward. `tilt` turns
    it clockwise, in degrees. Raises ValueError for an unknown kind or color, a center outside the image, and a size
    that is not from `SMALLEST` to `LARGEST`.
    """

    kind: str
    color: str
    x: float = 0.5
    y: float = 0.5
    size: float = 0.35
    tilt: float = 0.0

    def __post_init__(self) -> None:
        for name, known in (("kind", KINDS), ("color", tuple(COLORS))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected one of {', '.join(known)}")
        for name, low, high in (("x", 0.0, 1.0), ("y", 0.0, 1.0), ("size", SMALLEST, LARGEST)):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} is {getattr(self, name)}; expected {low:g} to {high:g}")

    def __str__(self) -> str:
        return f"a {self.color} {self.kind}"
