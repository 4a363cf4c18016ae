"""Images with a label, as numbers from 0 (black) to 1, and two photographs.

Shapes: batch, channel (one of grey images, three of red, green and blue), height, width, label.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from tfbook.text.batching import LengthGroupedSampler

TEST_SHARE = 0.25  # the share of the digits that is kept for the test


@dataclass(frozen=True)
class LabelledImages:
    """Images and the number of each one's label."""

    images: Float[Tensor, "batch channel height width"]
    labels: Int64[Tensor, " batch"]

    @classmethod
    def of(
        cls, pixels: UInt8[Tensor, "batch channel height width"], labels: Int64[Tensor, " batch"], *, white: int = 255
    ) -> LabelledImages:
        """From whole numbers, of which `white` is the largest."""
        return cls(pixels.contiguous().float() / white, labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: slice | Int64[Tensor, " rows"]) -> LabelledImages:
        """Some of the images."""
        return LabelledImages(self.images[rows], self.labels[rows])

    def to(self, device: torch.device | str) -> LabelledImages:
        """The same on another device."""
        return LabelledImages(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True, kw_only=True)
class Images:
    """Images of a few kinds in two parts: what models are trained on, and on what they are judged."""

    name: str
    labels: tuple[str, ...]
    train: LabelledImages
    test: LabelledImages

    def few(self, count: int, *, seed: int) -> LabelledImages:
        """`count` images of each label, drawn from `train`. Raises ValueError when a label has fewer.

        With the same seed, a larger draw holds the smaller ones.
        """
        kinds = [(self.train.labels == label).nonzero()[:, 0] for label in range(len(self.labels))]
        smallest = min(map(len, kinds))
        if not 1 <= count <= smallest:
            raise ValueError(f"count is {count}; expected 1 to {smallest}, the images of the rarest label")
        dice = torch.Generator().manual_seed(seed)
        return self.train[torch.cat([kind[torch.randperm(len(kind), generator=dice)[:count]] for kind in kinds])]

    def standardised(self) -> Images:
        """The same with mean 0 and deviation 1 of each channel in `train`; `test` is shifted by as much."""
        deviation, mean = torch.std_mean(self.train.images, dim=(0, 2, 3), keepdim=True)

        def shifted(part: LabelledImages) -> LabelledImages:
            return replace(part, images=(part.images - mean) / deviation)

        return replace(self, train=shifted(self.train), test=shifted(self.test))

    def __str__(self) -> str:
        size = " × ".join(map(str, self.train.images.shape[1:]))
        parts = f"{len(self.train):,} images train, {len(self.test):,} test, each {size}"
        return f"{self.name}: {parts}; labels {', '.join(self.labels)}"


class ImageBatches:
    """`batches(step)` is the batch of that training step, the same whenever it is asked for.

    An epoch is `len(batches)` steps and holds every image once, in an order drawn from (seed, epoch). Raises ValueError
    when there is no image or `size` < 1.
    """

    def __init__(self, part: LabelledImages, *, size: int, seed: int):
        if not len(part):
            raise ValueError("part is empty; expected at least one image")
        self._part = part
        self._rows = LengthGroupedSampler(torch.ones(len(part), dtype=torch.int64), size=size, seed=seed)

    def __len__(self) -> int:
        return len(self._rows)

    def __call__(self, step: int) -> LabelledImages:
        return self._part[self._rows(step)]


@dataclass(frozen=True, kw_only=True)
class Photographs:
    """Photographs by name, `photographs["china"]`."""

    name: str
    pictures: dict[str, Float[Tensor, "3 height width"]]

    def __getitem__(self, name: str) -> Float[Tensor, "3 height width"]:
        if name not in self.pictures:
            raise KeyError(f"no photograph is called {name!r}; there are {', '.join(self.pictures)}")
        return self.pictures[name]

    def __str__(self) -> str:
        sizes = (f"{name} {picture.shape[1]} × {picture.shape[2]}" for name, picture in self.pictures.items())
        return f"{self.name}: {', '.join(sizes)}"


# ---- what comes with scikit-learn --------------------------------------------------------------------------------


def read_digits() -> Images:
    """Handwritten digits of 8 × 8 pixels and 17 shades (Alpaydin & Kaynak, 1998), a quarter of them for the test.

    Divided by a hash of the image. All were written by 13 people, of whom both parts hold digits.
    """
    from sklearn.datasets import load_digits

    found = load_digits()
    pixels = found.images.astype(np.uint8)
    drawn = [int.from_bytes(hashlib.sha256(image.tobytes()).digest()[:4]) < TEST_SHARE * 2**32 for image in pixels]
    whole = LabelledImages.of(torch.from_numpy(pixels)[:, None], torch.from_numpy(found.target).long(), white=16)
    train, test = (whole[(torch.tensor(drawn) == part).nonzero()[:, 0]] for part in (False, True))
    return Images(name="digits", labels=tuple("0123456789"), train=train, test=test)


def read_photographs() -> Photographs:
    """A Chinese palace and a flower, 427 × 640 pixels each."""
    from sklearn.datasets import load_sample_image

    pixels = {name: torch.tensor(load_sample_image(f"{name}.jpg")) for name in ("china", "flower")}
    pictures = {name: image.permute(2, 0, 1).float() / 255 for name, image in pixels.items()}
    return Photographs(name="photographs", pictures=pictures)


# ---- what is fetched: verified by tfbook, unpacked and then read by torchvision ------------------------------------


def unpacked_to(sha256: str) -> Callable[[Path], None]:
    """A check of gzipped files: other wrappers of the same content are as good."""

    def check(path: Path) -> None:
        with gzip.open(path) as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
        if found != sha256:
            raise ValueError(f"sha256 of what it holds is {found}; expected {sha256}")

    check.__qualname__ = f"unpacked_to.{sha256}"  # by which a file in the cache is known as verified
    return check


def read_fashion_mnist(*paths: str | Path) -> Images:
    """Grey pictures of clothes, 28 × 28 pixels (Xiao et al., 2017), from the four gzipped files that it consists of."""
    from torchvision.datasets import FashionMNIST

    with TemporaryDirectory() as folder:
        raw = Path(folder, "FashionMNIST", "raw")
        raw.mkdir(parents=True)
        for path in map(Path, paths):
            with gzip.open(path) as packed, (raw / path.stem).open("wb") as file:
                shutil.copyfileobj(packed, file)
        train, test = (FashionMNIST(folder, train=part, download=False) for part in (True, False))
    parts = {"train": train, "test": test}
    found = {name: LabelledImages.of(part.data[:, None], part.targets) for name, part in parts.items()}
    return Images(name="fashion-mnist", labels=tuple(train.classes), **found)


def read_cifar10(path: str | Path) -> Images:
    """Colour pictures of things and animals, 32 × 32 pixels (Krizhevsky, 2009), from the archive for Python."""
    from torchvision.datasets import CIFAR10

    with TemporaryDirectory() as folder:
        with tarfile.open(path) as archive:
            archive.extractall(folder, filter="data")
        train, test = (CIFAR10(folder, train=part, download=False) for part in (True, False))
    parts = {"train": train, "test": test}
    found = {
        name: LabelledImages.of(torch.from_numpy(part.data).permute(0, 3, 1, 2), torch.tensor(part.targets))
        for name, part in parts.items()
    }
    return Images(name="cifar-10", labels=tuple(train.classes), **found)
