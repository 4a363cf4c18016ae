"""The tools that each field had before, beside the lesson's blocks: networks for sound, and plain means on graphs.

Shapes: clip, mel, frame, digit; batch, node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor, nn

from tfbook import runtime
from tfbook.course.cost import parameters
from tfbook.course.experiments import experiment, stored
from tfbook.data.graphs import RINGS
from tfbook.data.spoken import spoken
from tfbook.lessons.modalities.rings import new_ring_reader, right, train_rings, unseen_molecules, with_walks
from tfbook.lessons.modalities.sound import MODELS, STEPS, TEST, TRAIN, share_heard, standardized_pictures, train
from tfbook.models.cnn import Cnn
from tfbook.models.graphs import GraphNet, GraphTransformer

if TYPE_CHECKING:
    from pandas import DataFrame

# ---- sound -----------------------------------------------------------------------------------------------------------


class Ear(nn.Module):
    """A classifier of pictures of sounds, as `AudioTransformer` is one: `network` maps (clip, mel, frame) to logits."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def picture(self, sound: Float[Tensor, "clip time"]) -> Float[Tensor, "clip mel frame"]:
        """The same picture that the Transformer sees."""
        return standardized_pictures(sound)

    def classify(self, picture: Float[Tensor, "clip mel frame"]) -> Float[Tensor, "clip digit"]:
        """One row of logits per picture."""
        return self.network(picture)

    def forward(self, sound: Float[Tensor, "clip time"]) -> Float[Tensor, "clip digit"]:
        """One row of logits per sound."""
        return self.classify(self.picture(sound))


class BothWays(nn.Module):
    """A gated recurrent network that reads the frames forward and backward; the mean of its states is classified."""

    def __init__(self, bands: int = 32, d_hidden: int = 64, labels: int = 10):
        super().__init__()
        self.gru = nn.GRU(bands, d_hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * d_hidden, labels)

    def forward(self, picture: Float[Tensor, "clip mel frame"]) -> Float[Tensor, "clip digit"]:
        """One row of logits per picture."""
        return self.head(self.gru(picture.mT)[0].mean(dim=1))


class OfPictures(Cnn):
    """A convolutional network on pictures of one channel."""

    def forward(self, images: Float[Tensor, "clip mel frame"]) -> Float[Tensor, "clip digit"]:
        """One row of logits per picture."""
        return super().forward(images[:, None])


EARS: dict[str, Callable[[], nn.Module]] = {
    "recurrent network (GRU)": BothWays,
    "convolutions (CNN)": lambda: OfPictures(10, channels=1, width=16, stages=2, stem=2),
}


def new_ear(name: str, seed: int) -> Ear:
    """An untrained rival for sounds, one of `EARS`."""
    runtime.seed(seed)
    return Ear(EARS[name]())


@experiment
def ears(seeds: Sequence[int] = (1, 2, 3), *, steps: int = STEPS) -> list[dict[str, Any]]:
    """Digits of the 40 held-out speakers by a recurrent and a convolutional network, trained as the Transformer is."""
    known, test, found = spoken(TRAIN), spoken(TEST), []
    for name in EARS:
        for seed in seeds:
            model = new_ear(name, seed)
            train(model, known, seed=seed, steps=steps)
            model.eval()
            heard = round(share_heard(model, test), 4)
            found.append({"model": name, "seed": seed, "right": heard, "parameters": parameters(model)})
    return found


# ---- graphs ----------------------------------------------------------------------------------------------------------


def without_scores(model: GraphTransformer) -> GraphTransformer:
    """The same model whose queries are 0 for good: all scores are equal, so that a node takes a plain mean."""
    for block in model.stack.blocks:
        for layer in (block.mixer.branch.W_Q, block.mixer.branch.W_K):
            for weight in layer.parameters():
                nn.init.zeros_(weight)
                weight.requires_grad_(False)
    return model


def trained_parameters(model: nn.Module) -> int:
    """The parameters that training may change."""
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


def wide_gcn(seed: int) -> GraphNet:
    """A graph convolution of three layers with about as many parameters as our blocks."""
    runtime.seed(seed)
    d_input = with_walks(unseen_molecules()[:1]).features.shape[-1]
    return GraphNet(d_input, len(RINGS), kind="convolution", d_model=100, layers=3).to(runtime.device())


MEAN, WIDE = "our blocks, plain mean over neighbors", "GCN, wide"


@experiment
def means(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 300) -> list[dict[str, Any]]:
    """Rings from return probabilities: our blocks with plain means, and a wide graph convolution."""
    found = []
    for seed in seeds:
        readers = {MEAN: without_scores(new_ring_reader(seed=seed)), WIDE: wide_gcn(seed)}
        for name, model in readers.items():
            train_rings(model, steps=steps, seed=seed)
            share = round(right(model), 4)
            found.append({"reader": name, "seed": seed, "right": share, "parameters": trained_parameters(model)})
    return found


# ---- tables ----------------------------------------------------------------------------------------------------------


CLOSEST = ("recurrent network (GRU)", "convolutions (CNN)", "linear, average and spread", *MODELS)


def closest(digits: DataFrame) -> DataFrame:
    """The runs of our models and of the best rival of each kind."""
    return digits[digits.model.isin(CLOSEST)]


def mean_table(means: DataFrame, codes: DataFrame) -> DataFrame:
    """Right rings with return probabilities of each reader: the mean over seeds, the smallest and the largest."""
    import pandas as pd

    runs = pd.concat([codes[codes.sight == "+ return probabilities"], means])
    shares = runs.groupby("reader").right.agg(["mean", "min", "max"]).sort_values("mean", ascending=False)
    return shares.map("{:.1%}".format)


def all_digits() -> DataFrame:
    """The stored runs of `digits` and of `ears` in one table."""
    import pandas as pd

    return pd.concat([stored("modalities.digits").frame, stored("modalities.ears").frame])
