"""A GPT in one file of plain PyTorch: tokenizer, model, optimizer, training and sampling.

    python my_gpt.py book.txt --seconds 60           learn to write from a text, then write
    python my_gpt.py book.txt --load my_gpt.pt --start "Once there was"
    python my_gpt.py --gpt2 FOLDER --start "The sea"  write with GPT-2's published weights
    python my_gpt.py --check                          compare with tfbook, where it is installed

Blank lines in the text separate documents. Shapes: batch, n (tokens), heads, d (the model's width), d_head, vocab.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

END = 0  # the token between documents; text has only others, so it also stands where nothing is asked


@dataclass
class Size:
    vocab: int = 0
    d: int = 128
    heads: int = 4
    d_ff: int = 128
    layers: int = 2
    context: int = 128
    gpt2: bool = False  # learned positions instead of rotary ones, and GPT-2's GELU


# ---- tokenizer: byte-level BPE ---------------------------------------------------------------------------------------

Word = tuple[str, ...]
Pair = tuple[str, str]
WORD = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")  # as GPT-2 cuts a text


VISIBLE = [*range(33, 127), *range(161, 173), *range(174, 256)]  # bytes that stand for themselves, as in GPT-2's files
HIDDEN = [byte for byte in range(256) if byte not in VISIBLE]
LETTERS = [chr(byte if byte in VISIBLE else 256 + HIDDEN.index(byte)) for byte in range(256)]
BYTES = {letter: byte for byte, letter in enumerate(LETTERS)}


# piece: tokenizers.learned
def learned(words: dict[Word, int], count: int) -> list[Pair]:
    """The merges: `count` times, the pair of neighbors that is most frequent becomes one token."""
    merges: list[Pair] = []
    for _ in range(count):
        counts: Counter[Pair] = Counter()
        for word, times in words.items():
            for pair in pairwise(word):
                counts[pair] += times
        if not counts:
            return merges
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        words = {tuple(encoded(list(word), [best])): times for word, times in words.items()}
        merges.append(best)
    return merges


# piece: tokenizers.encoded
def encoded(word: list[str], merges: list[Pair]) -> list[str]:
    """The tokens of a word: all merges, in the order in which they were learned."""
    tokens = list(word)
    for pair in merges:
        i = 0
        while i < len(tokens) - 1:
            if (tokens[i], tokens[i + 1]) == pair:
                tokens[i : i + 2] = ["".join(pair)]
            i += 1
    return tokens


class Tokenizer:
    def __init__(self, merges: list[Pair], ids: dict[str, int] | None = None):
        self.merges = merges
        tokens = [*LETTERS, *dict.fromkeys("".join(pair) for pair in merges)]
        self.ids = {token: i for i, token in enumerate(tokens, start=1)} if ids is None else ids
        self.tokens = {i: token for token, i in self.ids.items()}
        self.size = max(self.tokens) + 1
        self.known: dict[str, list[int]] = {}

    @classmethod
    def of(cls, text: str, merges: int = 1500, words: int = 4000) -> Tokenizer:
        """Learns from the most frequent words."""
        counts = Counter(WORD.findall(text)).most_common(words)
        return cls(learned({tuple(LETTERS[b] for b in word.encode()): times for word, times in counts}, merges))

    def encode(self, text: str) -> list[int]:
        """Word by word; each word is worked out once."""
        ids = []
        for word in WORD.findall(text):
            if word not in self.known:
                tokens = encoded([LETTERS[byte] for byte in word.encode()], self.merges)
                self.known[word] = [self.ids[token] for token in tokens]
            ids += self.known[word]
        return ids

    def decode(self, ids: list[int], end: int = END) -> str:
        """The text up to the end."""
        letters = "".join(self.tokens[i] for i in takewhile(lambda i: i != end, ids))
        return bytes(BYTES[letter] for letter in letters).decode(errors="replace")


# ---- model -----------------------------------------------------------------------------------------------------------


# piece: start_here.softmax
def softmax(scores: Tensor) -> Tensor:
    """Weights that are positive and sum to 1, without overflow."""
    weights = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return weights / weights.sum(dim=-1, keepdim=True)


# piece: transformer.normalize
def normalize(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """Each vector with mean 0 and variance 1, then scaled and shifted."""
    centered = x - x.mean(dim=-1, keepdim=True)
    variance = centered.square().mean(dim=-1, keepdim=True)
    return weight * centered / (variance + epsilon).sqrt() + bias


# piece: positions.rotary
def rotary(x: Tensor, positions: Tensor) -> Tensor:
    """Turns each pair of neighbors in a vector by an angle that grows with its position."""
    d_head = x.shape[-1]
    angles = torch.outer(positions, 10_000 ** (-torch.arange(0, d_head, 2) / d_head))
    cos, sin = angles.cos(), angles.sin()
    first, second = x[..., 0::2], x[..., 1::2]
    return torch.stack([first * cos - second * sin, first * sin + second * cos], dim=-1).flatten(-2)


# piece: gpt_pretraining.attend
def attend(layer: Any, x: Tensor) -> Tensor:
    """Causal attention of each head, and the mixture of all heads."""
    q, k, v = (layer.split(W(x)) for W in (layer.W_Q, layer.W_K, layer.W_V))
    mixed = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
    return layer.W_O(mixed.transpose(1, 2).flatten(2))


# piece: transformer.pre_norm_block
def pre_norm_block(x: Tensor, attention: Any, feed_forward: Any, attention_norm: Any, feed_forward_norm: Any) -> Tensor:
    """Two residual branches, each of which reads a normalized stream."""
    x = x + attention(attention_norm(x))
    return x + feed_forward(feed_forward_norm(x))


def rotated(x: Tensor) -> Tensor:
    """Queries or keys, (batch, head, n, d_head), turned by their positions; GPT-2 adds its positions elsewhere."""
    return x if Attention.gpt2 else rotary(x, torch.arange(x.shape[2], dtype=torch.float32))


class Norm(nn.Module):
    def __init__(self, size: Size):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size.d)), nn.Parameter(torch.zeros(size.d))

    def forward(self, x: Tensor) -> Tensor:
        return normalize(x, self.weight, self.bias, 1e-5)


class Attention(nn.Module):
    gpt2 = False

    def __init__(self, size: Size):
        super().__init__()
        self.heads = size.heads
        self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Linear(size.d, size.d) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:  # (batch, n, d) → (batch, head, n, d_head)
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        return attend(self, x)


class FeedForward(nn.Module):
    def __init__(self, size: Size):
        super().__init__()
        self.up, self.down = nn.Linear(size.d, size.d_ff), nn.Linear(size.d_ff, size.d)
        self.approximate = "tanh" if size.gpt2 else "none"

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x), approximate=self.approximate))


class Block(nn.Module):
    def __init__(self, size: Size):
        super().__init__()
        self.attention, self.feed_forward = Attention(size), FeedForward(size)
        self.attention_norm, self.feed_forward_norm = Norm(size), Norm(size)

    def forward(self, x: Tensor) -> Tensor:
        return pre_norm_block(x, self.attention, self.feed_forward, self.attention_norm, self.feed_forward_norm)


class GPT(nn.Module):
    def __init__(self, size: Size):
        super().__init__()
        self.size = size
        self.embed = nn.Embedding(size.vocab, size.d)
        self.positions = nn.Embedding(size.context, size.d) if size.gpt2 else None
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = Norm(size)
        for weight in self.parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:  # (batch, n) → logits of the next token, (batch, n, vocab)
        Attention.gpt2 = self.size.gpt2
        x = self.embed(ids)
        if self.positions is not None:
            x = x + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.embed.weight.T  # tied: one matrix reads and writes


# ---- training --------------------------------------------------------------------------------------------------------


# piece: gpt_pretraining.story_loss
def story_loss(logits: Tensor, ids: Tensor, pad: int) -> Tensor:
    """The mean of −ln p of each token given those before it; `pad` is not counted."""
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), ignore_index=pad)


# piece: scaling_laws.one_round
def one_round(X: Tensor) -> Tensor:
    """One round of Newton and Schulz: singular values move towards 1."""
    square = X @ X.mT
    return 3.4445 * X + (-4.775 * square + 2.0315 * square @ square) @ X


class Muon(torch.optim.Optimizer):
    """Momentum, but each matrix steps by the nearest matrix whose singular values are about 1."""

    def __init__(self, weights: list[nn.Parameter], lr: float, momentum: float = 0.9, rms: float = 0.2):
        super().__init__(weights, {"lr": lr, "momentum": momentum, "rms": rms})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for shape in {weight.shape for weight in group["params"]}:  # matrices of one size go together
                weights = [weight for weight in group["params"] if weight.shape == shape]
                X = torch.stack([self.direction(weight, group["momentum"]) for weight in weights])
                X = X / (X.norm(dim=(1, 2), keepdim=True) + 1e-7)
                for _ in range(5):
                    X = one_round(X)
                for weight, step in zip(weights, group["lr"] * group["rms"] * max(shape) ** 0.5 * X, strict=True):
                    weight.sub_(step)

    def direction(self, weight: Any, momentum: float) -> Tensor:
        """The gradient and its running mean, mixed."""
        mean = self.state[weight].setdefault("mean", torch.zeros_like(weight)).lerp_(weight.grad, 1 - momentum)
        return weight.grad.lerp(mean, momentum)


def train(model: GPT, stream: Tensor, seconds: float, lr: float = 0.03, batch: int = 16) -> float:
    """Trains for so many seconds and returns the last losses' mean. Ctrl-C ends it sooner."""
    matrices = [weight for weight in model.blocks.parameters() if weight.ndim == 2]
    rest = [weight for weight in model.parameters() if not any(weight is matrix for matrix in matrices)]
    optimizers = [Muon(matrices, lr), torch.optim.AdamW(rest, lr, betas=(0.9, 0.99), weight_decay=0)]
    row, began, losses = torch.arange(model.size.context + 1), time.monotonic(), [float("nan")]
    ends = [0, *(stream == END).nonzero()[:, 0].tolist()]  # a row begins there, and goes on where a document is longer
    starts = torch.tensor([i for a, b in pairwise(ends) for i in range(a, b, len(row)) if i + len(row) <= len(stream)])
    try:
        while (done := (time.monotonic() - began) / seconds) < 1:
            ids = stream[starts[torch.randint(len(starts), (batch,))][:, None] + row]
            loss = story_loss(model(ids), ids, -1)
            model.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                optimizer.param_groups[0]["lr"] = lr * min(1, len(losses) / 20) * (1 + math.cos(math.pi * done)) / 2
                optimizer.step()
            losses = [*losses[-99:], loss.item()]
            print(f"\r{done:4.0%}  loss {losses[-1]:.2f}", end="", flush=True)
    except KeyboardInterrupt:
        print("\nstopped", end="")
    print()
    return sum(losses[1:]) / max(1, len(losses) - 1)


# ---- writing ---------------------------------------------------------------------------------------------------------


# piece: decoding.top_p
def top_p(logits: Tensor, p: float) -> Tensor:
    """Keeps the smallest set of likeliest tokens whose probabilities sum to p or more."""
    ordered, places = logits.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    drop = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, places, before >= p)
    return logits.masked_fill(drop, -torch.inf)


@torch.no_grad()
def write(model: GPT, tokenizer: Tokenizer, start: str = "", count: int = 1, heat: float = 0.7, p: float = 1.0) -> Any:
    """Texts that begin with `start`, token by token, each up to its end or to what the model can read."""
    end = tokenizer.ids.get("<|endoftext|>", END)
    ids = torch.tensor([[end, *tokenizer.encode(start)]] * count)
    while ids.shape[1] < model.size.context and not (ids[:, 1:] == end).any(dim=1).all():
        weights = softmax(top_p(model(ids)[:, -1] / heat, p))
        ids = torch.cat([ids, torch.multinomial(weights, num_samples=1)], dim=1)
    return [tokenizer.decode(row.tolist()[1:], end) for row in ids]


# ---- files -----------------------------------------------------------------------------------------------------------


def load(path: Path) -> tuple[GPT, Tokenizer]:
    """A model that was kept after its training, and its tokenizer."""
    saved = torch.load(path, weights_only=True)
    model = GPT(Size(**saved["size"]))
    model.load_state_dict(saved["weights"])
    return model, Tokenizer([tuple(pair) for pair in saved["merges"]])


def gpt2(folder: Path) -> tuple[GPT, Tokenizer]:
    """GPT-2 from its published files: config.json, vocab.json, merges.txt, and the weights in one of two formats."""
    if (folder / "model.safetensors").is_file():
        from safetensors.torch import load_file

        weights = load_file(folder / "model.safetensors")
    else:
        weights = torch.load(folder / "pytorch_model.bin", weights_only=True)
    config = json.loads((folder / "config.json").read_text())
    d, heads, layers = config["n_embd"], config["n_head"], config["n_layer"]
    size = Size(
        config["vocab_size"], d, heads, config.get("n_inner") or 4 * d, layers, config["n_positions"], gpt2=True
    )
    model = GPT(size)
    model.load_state_dict(from_gpt2({name.removeprefix("transformer."): w for name, w in weights.items()}, layers))
    lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
    merges = [(a, b) for a, b in (line.split() for line in lines if line and not line.startswith("#version"))]
    return model, Tokenizer(merges, json.loads((folder / "vocab.json").read_text(encoding="utf-8")))


def from_gpt2(theirs: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Their names in ours; their matrices are transposed, and queries, keys and values lie side by side."""
    parts = {"ln_1": "attention_norm", "ln_2": "feed_forward_norm", "attn.c_proj": "attention.W_O"}
    parts |= {"mlp.c_fc": "feed_forward.up", "mlp.c_proj": "feed_forward.down"}
    ours = {"embed.weight": theirs["wte.weight"], "positions.weight": theirs["wpe.weight"]}
    for kind in ("weight", "bias"):
        ours[f"norm.{kind}"] = theirs[f"ln_f.{kind}"]
        for i in range(layers):
            for their, our in parts.items():
                ours[f"blocks.{i}.{our}.{kind}"] = theirs[f"h.{i}.{their}.{kind}"].t()
            joined = theirs[f"h.{i}.attn.c_attn.{kind}"].chunk(3, dim=-1)
            ours |= {f"blocks.{i}.attention.W_{name}.{kind}": w.t() for name, w in zip("QKV", joined, strict=True)}
    return ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, nargs="?", help="a text file to learn from; the model is kept in my_gpt.pt")
    parser.add_argument("--seconds", type=float, default=60.0, help="of training")
    parser.add_argument("--load", type=Path, help="write with a model that was kept, without training")
    parser.add_argument("--gpt2", type=Path, help="a folder with GPT-2's published files")
    parser.add_argument("--start", default="", help="how the text begins")
    parser.add_argument("--check", action="store_true", help="compare with tfbook")
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.check:
        from tfbook.course.own import check_file

        check_file(__file__)
        return
    if options.gpt2 or options.load:
        model, tokenizer = gpt2(options.gpt2) if options.gpt2 else load(options.load)
    elif options.text:
        text = options.text.read_text(encoding="utf-8-sig")
        tokenizer = Tokenizer.of(text)
        stream = torch.tensor([i for part in re.split(r"\n\s*\n", text) for i in [*tokenizer.encode(part), END]])
        model = GPT(Size(tokenizer.size))
        print(f"{len(stream):,} tokens of {tokenizer.size:,} kinds")
        if len(stream) <= model.size.context:
            parser.error(f"the text has {len(stream)} tokens; expected more than {model.size.context}")
        print(f"loss {train(model, stream, options.seconds):.2f}\n")
        kept = {"size": asdict(model.size), "merges": tokenizer.merges, "weights": model.state_dict()}
        torch.save(kept, "my_gpt.pt")
    else:
        parser.error("expected a text to learn from, --load, --gpt2 or --check")
    print(*write(model, tokenizer, options.start, count=3), sep="\n\n")


if __name__ == "__main__":
    main()
