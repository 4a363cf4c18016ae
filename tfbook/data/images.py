"""Labeled images, as numbers from 0 (black) to 1, and two photographs.

Shapes: batch, channel (one for gray images; red, green, blue), height, width.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from operator import index
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import SupportsIndex

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from tfbook.data.archives import Unpacked, reader
from tfbook.text.batching import LengthGroupedSampler

TEST_SHARE = 0.25  # of the digits
MOST = 1 << 28  # bytes of a file, unpacked; CIFAR-10, the largest, has 186 million


@dataclass(frozen=True)
class LabeledImages:
    """Images and the number of each one's label. Raises ValueError unless there are as many of both."""

    images: Float[Tensor, "batch channel height width"]
    labels: Int64[Tensor, " batch"]

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise ValueError(f"labels holds {len(self.labels)} for {len(self.images)} images; expected one for each")

    @classmethod
    def from_pixels(
        cls, pixels: UInt8[Tensor, "batch channel height width"], labels: Int64[Tensor, " batch"], *, white: int = 255
    ) -> LabeledImages:
        """Converts integers from 0 to `white` to numbers from 0 to 1."""
        return cls(pixels.contiguous().float() / white, labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: slice | Int64[Tensor, " rows"]) -> LabeledImages:
        """The images and labels of some rows."""
        return LabeledImages(self.images[rows], self.labels[rows])

    def to(self, device: torch.device | str) -> LabeledImages:
        """The same images on another device."""
        return LabeledImages(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True, kw_only=True)
class Images:
    """A labeled set of images, split into train and test."""

    name: str
    labels: tuple[str, ...]
    train: LabeledImages
    test: LabeledImages

    def few_shot(self, count: int, *, seed: SupportsIndex) -> LabeledImages:
        """`count` images of each label, sampled from `train`. Raises ValueError when a label has fewer.

        With the same seed, a larger sample contains the smaller ones.
        """
        by_label = [(self.train.labels == label).nonzero()[:, 0] for label in range(len(self.labels))]
        smallest = min(map(len, by_label))
        if not 1 <= count <= smallest:
            raise ValueError(f"count is {count}; expected 1 to {smallest}, the images of the rarest label")
        generator = torch.Generator().manual_seed(index(seed))
        chosen = [rows[torch.randperm(len(rows), generator=generator)[:count]] for rows in by_label]
        return self.train[torch.cat(chosen)]

    def standardized(self) -> Images:
        """Each channel with mean 0 and standard deviation 1 in `train`; `test` is scaled by the same numbers.

        A channel that is constant in `train` is only shifted.
        """
        low, high = (bound(self.train.images, dim=(0, 2, 3), keepdim=True) for bound in (torch.amin, torch.amax))
        deviation, mean = torch.std_mean(self.train.images, dim=(0, 2, 3), keepdim=True)
        deviation, mean = torch.where(low == high, 1.0, deviation), torch.where(low == high, low, mean)

        def scaled(part: LabeledImages) -> LabeledImages:
            return replace(part, images=(part.images - mean) / deviation)

        return replace(self, train=scaled(self.train), test=scaled(self.test))

    def __str__(self) -> str:
        size = " × ".join(map(str, self.train.images.shape[1:]))
        parts = f"{len(self.train):,} images train, {len(self.test):,} test, each {size}"
        return f"{self.name}: {parts}; labels {', '.join(self.labels)}"


class ImageBatches:
    """`batches(step)` is the batch of that training step, the same one each time it is called.

    An epoch is `len(batches)` steps and contains every image once, in an order drawn from (seed, epoch). Raises
    ValueError when there are no images or `size` < 1.
    """

    def __init__(self, part: LabeledImages, *, size: int, seed: SupportsIndex):
        if not len(part):
            raise ValueError("part is empty; expected at least one image")
        self._part = part
        self._rows = LengthGroupedSampler(torch.ones(len(part), dtype=torch.int64), size=size, seed=seed)

    def __len__(self) -> int:
        return len(self._rows)

    def __call__(self, step: int) -> LabeledImages:
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


# ---- from scikit-learn -------------------------------------------------------------------------------------------


def read_digits() -> Images:
    """Handwritten digits, 8 × 8 pixels in 17 shades (Alpaydin & Kaynak, 1998), a quarter of them for the test.

    They are split by a hash of the image, so digits by each of the 13 writers are in both parts.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels, labels = digits.images.astype(np.uint8), torch.from_numpy(digits.target).long()
    is_test = [int.from_bytes(hashlib.sha256(image.tobytes()).digest()[:4]) < TEST_SHARE * 2**32 for image in pixels]
    whole = LabeledImages.from_pixels(torch.from_numpy(pixels)[:, None], labels, white=16)
    train, test = (whole[(torch.tensor(is_test) == part).nonzero()[:, 0]] for part in (False, True))
    return Images(name="digits", labels=tuple("0123456789"), train=train, test=test)


def read_photographs() -> Photographs:
    """A Chinese palace and a flower, 427 × 640 pixels each."""
    from sklearn.datasets import load_sample_image

    pixels = {name: torch.tensor(load_sample_image(f"{name}.jpg")) for name in ("china", "flower")}
    pictures = {name: image.permute(2, 0, 1).float() / 255 for name, image in pixels.items()}
    return Photographs(name="photographs", pictures=pictures)


# ---- downloaded and verified by tfbook, then unpacked and read by torchvision ------------------------------------


def unpacked_to(sha256: str) -> Callable[[Path], None]:
    """A check of a gzipped file by its content, since the same content can be compressed in several ways."""
    check = partial(_check_unpacked, sha256=sha256)
    vars(check)["__qualname__"] = f"unpacked_to.{sha256}"  # which the stamp of a verified file in the cache names
    return check


def _check_unpacked(path: Path, *, sha256: str) -> None:
    with Unpacked(path, most=MOST) as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(f"sha256 of what it holds is {found}; expected {sha256}")


@reader
def read_fashion_mnist(*paths: str | Path) -> Images:
    """Gray pictures of clothes, 28 × 28 pixels (Xiao et al., 2017), from its four gzipped files."""
    from torchvision.datasets import FashionMNIST

    with TemporaryDirectory() as folder:
        raw = Path(folder, "FashionMNIST", "raw")
        raw.mkdir(parents=True)
        for path in map(Path, paths):
            with Unpacked(path, most=MOST) as packed, (raw / path.stem).open("wb") as file:
                shutil.copyfileobj(packed, file)
        train, test = (FashionMNIST(folder, train=part, download=False) for part in (True, False))
    parts = {"train": train, "test": test}
    images = {name: LabeledImages.from_pixels(part.data[:, None], part.targets) for name, part in parts.items()}
    return Images(name="fashion-mnist", labels=tuple(train.classes), **images)


@reader
def read_cifar10(path: str | Path) -> Images:
    """Color pictures of vehicles and animals, 32 × 32 pixels (Krizhevsky, 2009), from the archive for Python."""
    from torchvision.datasets import CIFAR10

    with TemporaryDirectory() as folder:
        stream = Unpacked(path, most=MOST)
        with stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            archive.extractall(folder, filter="data")
        train, test = (CIFAR10(folder, train=part, download=False) for part in (True, False))
    parts = {"train": train, "test": test}
    images = {
        name: LabeledImages.from_pixels(torch.from_numpy(part.data).permute(0, 3, 1, 2), torch.tensor(part.targets))
        for name, part in parts.items()
    }
    return Images(name="cifar-10", labels=tuple(train.classes), **images)
