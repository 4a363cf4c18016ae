"""What one GPU does in a second with a GPT and a ViT, ours and those of the projects that people take for it.

    git clone https://github.com/karpathy/nanoGPT && git clone https://github.com/karpathy/nanochat
    pip install transformers timm vit-pytorch filelock tiktoken rustbpe
    python benchmarks/gpu.py --nanogpt nanoGPT --nanochat nanochat [--only training] [--minutes 6] [--out gpu.json]
    python benchmarks/gpu.py --nanogpt nanoGPT --store inference.one_h100          what lesson 16 shows

Everything computes in bfloat16. Training is loss, gradient, clipping and AdamW, ours by `training.fit`, and its speed
that of the further steps of a longer run, so that what a run does once counts for nobody; generating adds
256 tokens to a prompt of 16, ours by `sampling.generate`, with the model as it was trained and frozen; classifying is
training, too, of a ViT. Compiling is not part of the time; it is part of the minutes, after which what is left is left
out and named. The share of the peak is the model's own operations (`gpt.flops`, three times a forward pass) over what
the GPU's maker states for dense products in bfloat16. Memory is the most that tensors took at once. A ratio is the best
of ours over a peer. Exit status 1 when a bar is missed. `--size tiny` tries all of it in seconds, on a CPU, too.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from gpt_speed import Peer
from text_peers import Folders, nanochat_speaks, text_peers
from torch import Tensor, nn
from torch.nn import functional as F
from vit_speed import simple_vit

from tfbook import runtime, training
from tfbook.attention import MultiHeadAttention
from tfbook.course.experiments import current_commit, machine, markdown, store
from tfbook.data.images import LabeledImages
from tfbook.generation import sampling
from tfbook.generation.frozen import Frozen
from tfbook.models import gpt
from tfbook.models.blocks import Config
from tfbook.models.gpt import GPT2_SMALL, Gpt
from tfbook.models.vit import VIT_BASE, Vit, VitConfig
from tfbook.text import Windows
from tfbook.training import next_token_loss

PROMPT = 16
OURS = "tfbook"
PEAKS = {  # dense products in bfloat16, operations a second, as the makers state them
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "RTX 4090": 165e12,
}


class Text(NamedTuple):
    """A GPT, the batches that it is trained on, and the bars: how many times a peer's speed ours has to have."""

    config: Config
    vocab: int
    batch: int
    time: int
    training: dict[str, float]
    generating: dict[tuple[str, int], float]  # by peer and batch
    utilization: float | None = None
    lean: str | None = None  # the peer whose memory in training is not exceeded


class Images(NamedTuple):
    """A ViT, its batches, the peer, and the bar."""

    config: VitConfig
    batch: int
    peer: Callable[[VitConfig], nn.Module]
    name: str
    needs: str
    bar: float


@dataclass(frozen=True)
class Size:
    """What is measured, how many steps for each figure, and how many tokens are generated."""

    texts: dict[str, Text]
    images: dict[str, Images]
    steps: tuple[int, int]  # of a shorter and of a longer run of training
    generated: int
    batches: tuple[int, ...]


class Figure(NamedTuple):
    """One row: what was done by whom, how much of it in a second, and the most memory that it took."""

    task: str
    size: str
    by: str
    per_second: float
    memory: int
    peak: float | None = None


# ---- the peers' images -------------------------------------------------------------------------------------------


def timm_vit(config: VitConfig) -> nn.Module:
    """timm's, in the same sizes."""
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        img_size=config.height,
        patch_size=config.patch,
        embed_dim=config.d_model,
        depth=config.layers,
        num_heads=config.heads,
        num_classes=LABELS,
    )


LABELS = 1000
FIVE = {("transformers", 1): 5.0, ("nanoGPT", 1): 5.0, ("transformers, static cache", 64): 2.0}
SMALL = replace(GPT2_SMALL, layers=6, d_model=384, heads=6, d_ff=1536, max_length=512, dropout=0.0)
SQUARES = VitConfig(d_model=128, heads=4, d_ff=512, layers=4, tokens=0, mixer=partial(MultiHeadAttention, bias=False))
FULL = Size(
    texts={
        "124M": Text(
            replace(GPT2_SMALL, dropout=0.0),
            50_304,
            16,
            1024,
            {"nanoGPT, compiled": 1.0},
            FIVE,
            utilization=0.39,
            lean="nanoGPT, compiled",
        ),
        "6 × 384": Text(SMALL, 50_304, 64, 256, {"nanoGPT, compiled": 1.0}, {("transformers", 1): 5.0}),
    },
    images={
        "B/16, 224 × 224": Images(VIT_BASE, 128, timm_vit, "timm", "timm", 1.0),
        "32 × 32": Images(SQUARES, 512, partial(simple_vit, labels=LABELS), "SimpleViT", "vit_pytorch", 1.0),
    },
    steps=(5, 35),
    generated=256,
    batches=(1, 64),
)
_TINY = replace(SMALL, layers=1, d_model=32, heads=2, d_ff=64, max_length=64)
_TINY_IMAGES = replace(SQUARES, layers=1, d_model=32, heads=2, d_ff=64)
TINY = Size(
    texts={"tiny": Text(_TINY, 64, 2, 16, {"nanoGPT, compiled": 0.0}, {("transformers", 1): 0.0}, utilization=0.0)},
    images={"tiny": Images(_TINY_IMAGES, 2, partial(simple_vit, labels=LABELS), "SimpleViT", "vit_pytorch", 0.0)},
    steps=(1, 11),
    generated=5,
    batches=(1, 2),
)


# ---- measuring ---------------------------------------------------------------------------------------------------


def measured(run: Callable[[], object], work: float, *, rounds: int = 3) -> tuple[float, int]:
    """`work` over the middle of the rounds' seconds, and the most bytes of tensors. A first run compiles."""
    run()
    forget_peak()
    return work / median(timed(run) for _ in range(rounds)), peak_memory()


def measured_steps(
    run: Callable[[int], object], work: float, steps: tuple[int, int], *, rounds: int = 3
) -> tuple[float, int]:
    """The same, where `work` is that of a step: of the steps by which the longer of two runs is longer."""
    shorter, longer = steps
    for _ in range(2):
        run(shorter)
    forget_peak()
    seconds = [timed(partial(run, longer)) - timed(partial(run, shorter)) for _ in range(rounds)]
    return work * (longer - shorter) / median(seconds), peak_memory()


def timed(run: Callable[[], object]) -> float:
    """The seconds until the device has done all of it."""
    runtime.synchronize()
    start = time.perf_counter()
    run()
    runtime.synchronize()
    return time.perf_counter() - start


def forget_peak() -> None:
    """From here on `peak_memory` counts anew."""
    if runtime.device().type == "cuda":
        torch.cuda.reset_peak_memory_stats()


def peak_memory() -> int:
    """The most bytes of tensors at once; 0 on a CPU, which does not count them."""
    return torch.cuda.max_memory_allocated() if runtime.device().type == "cuda" else 0


def peak_of(name: str) -> float | None:
    """The dense bfloat16 peak of a GPU with this name, in operations a second; None for one that is not listed."""
    return next((peak for kind, peak in PEAKS.items() if all(word in name for word in kind.split())), None)


def machine_peak() -> float | None:
    """That of the GPU in use."""
    return peak_of(torch.cuda.get_device_name()) if runtime.device().type == "cuda" else None


# ---- a GPT is trained --------------------------------------------------------------------------------------------

Job = tuple[str, Callable[[], Figure]]


def training_jobs(name: str, text: Text, size: Size, folders: Folders) -> Iterator[Job]:
    """Ours compiled and as it is, and the peers."""
    for compiles in (True, False):
        by = f"{OURS}, compiled" if compiles else OURS
        yield by, partial(train_ours, name, text, size, by, compiles=compiles)
    for by, make in text_peers(text.config, text.vocab, folders).items():
        yield by, partial(train_peer, name, text, size, by, make, compiles=False)
        yield f"{by}, compiled", partial(train_peer, name, text, size, f"{by}, compiled", make, compiles=True)


def batches_of(text: Text) -> Windows:
    """Random tokens: speed does not depend on them."""
    return Windows(torch.randint(text.vocab, (100 * text.time,)), length=text.time + 1, size=text.batch, seed=0)


def train_ours(name: str, text: Text, size: Size, by: str, *, compiles: bool) -> Figure:
    """`training.fit`; each call compiles nothing anew after the first."""
    runtime.seed(0)
    model, batches = Gpt(text.vocab, text.config).to(runtime.device()), batches_of(text)

    def run(steps: int) -> None:
        recipe = training.Recipe(steps=steps, betas=(0.9, 0.95), weight_decay=0.1, compile=compiles)
        training.fit(model, next_token_loss, batches, recipe)

    speed, memory = measured_steps(run, text.batch * text.time, size.steps)
    return Figure("training", name, by, speed, memory, utilization(speed, text))


def train_peer(name: str, text: Text, size: Size, by: str, make: Callable[[], Peer], *, compiles: bool) -> Figure:
    """Steps as nanoGPT's train.py takes them, which looks at the loss of one in ten."""
    runtime.seed(0)
    peer, batches = make(), batches_of(text)
    loss = torch.compile(peer.loss) if compiles else peer.loss
    peer.model.train()

    def run(steps: int) -> None:
        for step in range(steps):
            ids = sent(batches(step))
            with torch.autocast(runtime.device().type, torch.bfloat16):
                value = loss(ids)
            value.backward()
            nn.utils.clip_grad_norm_(peer.model.parameters(), 1.0)
            peer.optimizer.step()
            peer.optimizer.zero_grad(set_to_none=True)
            if step % 10 == 0:
                value.item()

    speed, memory = measured_steps(run, text.batch * text.time, size.steps)
    return Figure("training", name, by, speed, memory, utilization(speed, text))


def sent(ids: Tensor) -> Tensor:
    """On the device, from pinned memory where that helps."""
    on_gpu = runtime.device().type == "cuda"
    return ids.pin_memory().to(runtime.device(), non_blocking=True) if on_gpu else ids.to(runtime.device())


def utilization(speed: float, text: Text) -> float | None:
    """The share of the GPU's peak; None where that is not known."""
    peak = machine_peak()
    return None if peak is None else gpt.utilization(speed, text.vocab, text.config, text.time, peak=peak)


# ---- a GPT generates ---------------------------------------------------------------------------------------------


def generating_jobs(name: str, text: Text, size: Size, folders: Folders) -> Iterator[Job]:
    """Ours as it was trained and frozen, and the peers with weights in bfloat16, for each batch."""
    for batch in size.batches:
        for by, frozen in ((f"{OURS}, frozen", True), (OURS, False)):
            yield f"{by}, batch {batch}", partial(generate_ours, name, text, size, by, batch, frozen=frozen)
        others = text_peers(text.config, text.vocab, folders, spoken=size.generated)
        if "transformers" in others:
            others["transformers, static cache"] = partial(others["transformers"], cache_implementation="static")
        if batch != size.batches[0]:
            others.pop("nanoGPT", None)  # which has no cache
        if not nanochat_speaks():
            others.pop("nanochat", None)
        for by, make in others.items():
            yield f"{by}, batch {batch}", partial(generate_peer, name, text, size, by, batch, make)


def generate_ours(name: str, text: Text, size: Size, by: str, batch: int, *, frozen: bool) -> Figure:
    """`sampling.generate`, to which freezing belongs."""
    runtime.seed(0)
    model: Any = Gpt(text.vocab, text.config).to(runtime.device()).eval()
    prompt = torch.randint(text.vocab, (batch, PROMPT), device=runtime.device())

    def run() -> None:
        with runtime.autocast():
            speaker = Frozen(model, torch.bfloat16) if frozen else model
            sampling.generate(speaker, prompt, max_new_tokens=size.generated)

    speed, memory = measured(run, batch * size.generated)
    return Figure(f"generating, batch {batch}", name, by, speed, memory)


def generate_peer(name: str, text: Text, size: Size, by: str, batch: int, make: Callable[[], Peer]) -> Figure:
    """The peer's own `generate`."""
    runtime.seed(0)
    peer = make()
    peer.model.eval().to(torch.bfloat16)
    prompt = torch.randint(text.vocab, (batch, PROMPT), device=runtime.device())
    speed, memory = measured(partial(peer.speak, prompt), batch * size.generated)
    return Figure(f"generating, batch {batch}", name, by, speed, memory)


# ---- a ViT is trained --------------------------------------------------------------------------------------------


def image_jobs(name: str, images: Images, size: Size) -> Iterator[Job]:
    """Ours and the peer, compiled and as they are."""
    makes: dict[str, Callable[[], nn.Module]] = {OURS: partial(Vit, LABELS, images.config)}
    if find_spec(images.needs):
        makes[images.name] = partial(images.peer, images.config)
    for by, make in makes.items():
        for compiles in (True, False):
            label = f"{by}, compiled" if compiles else by
            yield label, partial(train_images, name, images, size, label, make, compiles=compiles)


def train_images(
    name: str, images: Images, size: Size, by: str, make: Callable[[], nn.Module], *, compiles: bool
) -> Figure:
    """The same steps for every model: cross-entropy, gradient, clipping, fused AdamW."""
    runtime.seed(0)
    shape = (images.batch, images.config.channels, images.config.height, images.config.width)
    batch = LabeledImages(torch.rand(shape), torch.randint(LABELS, (images.batch,))).to(runtime.device())
    model = make().to(runtime.device()).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05, fused=True)
    classify = torch.compile(model) if compiles else model

    def run(steps: int) -> None:
        for _ in range(steps):
            with torch.autocast(runtime.device().type, torch.bfloat16):
                loss = F.cross_entropy(classify(batch.images).float(), batch.labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    speed, memory = measured_steps(run, images.batch, size.steps)
    return Figure("classifying", name, by, speed, memory)


# ---- the command -------------------------------------------------------------------------------------------------


def jobs(size: Size, folders: Folders, only: str | None) -> Iterator[tuple[str, Job]]:
    """Everything that is measured, what a bar depends on first."""
    for name, text in size.texts.items():
        if only in (None, "training"):
            yield from ((f"training {name}", job) for job in training_jobs(name, text, size, folders))
        if only in (None, "generating"):
            yield from ((f"generating {name}", job) for job in generating_jobs(name, text, size, folders))
    for name, images in size.images.items():
        if only in (None, "classifying"):
            yield from ((f"classifying {name}", job) for job in image_jobs(name, images, size))


def measure(size: Size, folders: Folders, only: str | None, minutes: float) -> tuple[list[Figure], list[str]]:
    """A figure for each job until the minutes are over, and the jobs that are left out."""
    end, figures, left_out = time.monotonic() + 60 * minutes, [], []
    for kind, (by, job) in jobs(size, folders, only):
        if time.monotonic() > end:
            left_out.append(f"{kind}, {by}")
            continue
        print(f"{kind}, {by} …", file=sys.stderr, flush=True)
        figures.append(job())
        torch.compiler.reset()
        gc.collect()
        if runtime.device().type == "cuda":
            torch.cuda.empty_cache()
    return figures, left_out


def best_of_ours(figures: list[Figure], like: Figure) -> float:
    """Our best speed at the same task and size; NaN where we have none."""
    own = [each.per_second for each in figures if (each.task, each.size) == like[:2] and each.by.startswith(OURS)]
    return max(own, default=float("nan"))


def rows(figures: list[Figure], size: Size) -> list[dict[str, Any]]:
    """The table: a line for each figure, with the ratio of our best to it, and its bar."""
    return [
        {
            "task": each.task,
            "size": each.size,
            "by": each.by,
            "tokens or images/s": round(each.per_second),
            "share of the peak": "" if each.peak is None else f"{each.peak:.0%}",
            "memory, GB": f"{each.memory / 1e9:.1f}" if each.memory else "",
            "ours ÷ this": round(best_of_ours(figures, each) / each.per_second, 2),
            "bar": "" if bar_for(each, size) is None else f"≥ {bar_for(each, size)}",
        }
        for each in figures
    ]


def to_store(figures: list[Figure]) -> list[dict[str, Any]]:
    """A row for each figure, of which a lesson reads some."""
    return [
        {
            "task": each.task,
            "size": each.size,
            "by": each.by,
            "per second": round(each.per_second),
            "share of the peak": None if each.peak is None else round(each.peak, 3),
        }
        for each in figures
    ]


def bar_for(figure: Figure, size: Size) -> float | None:
    """The ratio to a peer that is asked for."""
    if figure.task == "classifying":
        images = size.images[figure.size]
        return images.bar if figure.by == f"{images.name}, compiled" else None
    text = size.texts[figure.size]
    if figure.task == "training":
        return text.training.get(figure.by)
    return text.generating.get((figure.by, int(figure.task.rpartition(" ")[2])))


def missed(figures: list[Figure], size: Size) -> list[str]:
    """The bars that are missed, in words."""
    found = []
    for each in figures:
        bar, ratio = bar_for(each, size), best_of_ours(figures, each) / each.per_second
        if bar is not None and not ratio >= bar:
            found.append(f"{each.task}, {each.size}: {ratio:.2f} times {each.by}, below {bar}")
    for name, text in size.texts.items():
        peaks = [each.peak for each in figures if each[:2] == ("training", name) and each.by.startswith(OURS)]
        reached = max((peak for peak in peaks if peak is not None), default=None)
        if text.utilization is not None and reached is not None and reached < text.utilization:
            found.append(f"training, {name}: {reached:.0%} of the peak, below {text.utilization:.0%}")
        memory = {each.by: each.memory for each in figures if each[:2] == ("training", name)}
        if text.lean in memory and memory.get(f"{OURS}, compiled", 0) > memory[text.lean]:
            found.append(f"training, {name}: more memory than {text.lean}")
    return found


def main() -> int:
    """Measures, prints the table and where it comes from; exit status 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", type=Path, help="the folder of a clone of karpathy/nanoGPT")
    parser.add_argument("--nanochat", type=Path, help="the folder of a clone of karpathy/nanochat")
    parser.add_argument("--only", choices=("training", "generating", "classifying"))
    parser.add_argument("--size", choices=("full", "tiny"), default="full")
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--out", type=Path, help="a JSON file for figures, machine and date")
    parser.add_argument("--store", metavar="NAME", help="a stored result for a lesson, under data/results")
    arguments = parser.parse_args()
    runtime.setup(0)
    commit, start = current_commit(), time.perf_counter()
    size = FULL if arguments.size == "full" else TINY
    figures, left_out = measure(size, Folders(arguments.nanogpt, arguments.nanochat), arguments.only, arguments.minutes)
    where = {"machine": machine(), "date": datetime.now(UTC).date().isoformat()}
    print("\n".join([f"{markdown(rows(figures, size))}\n", " · ".join(where.values()), *missed(figures, size)]))
    print("".join(f"left out, the minutes are over: {each}\n" for each in left_out), end="")
    if arguments.out:
        content = {**where, "figures": [each._asdict() for each in figures]}
        arguments.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if arguments.store:
        command, seconds = " ".join(["python", *sys.argv]), time.perf_counter() - start
        store(arguments.store, to_store(figures), command=command, commit=commit, seconds=seconds)
    return int(bool(missed(figures, size)))


if __name__ == "__main__":
    sys.exit(main())
