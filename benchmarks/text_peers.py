"""The GPTs of other projects that are there: clones of nanoGPT and nanochat, and transformers.

nanochat's (https://github.com/karpathy/nanochat) has rotary positions, squared ReLU, no biases and embeddings for
values, all cheap beside its products of matrices, which are as many and as large as those of a GPT-2 of the same sizes.
All its layers see the whole text, as its README has it without FlashAttention 3, which it takes where `pip install
kernels` has put it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import torch
from gpt_speed import Peer, fused_adamw, hugging_face, nanogpt
from torch import Tensor, nn

from tfbook import runtime
from tfbook.models.blocks import Config


class Folders(NamedTuple):
    """Clones of peers that are no packages."""

    nanogpt: Path | None = None
    nanochat: Path | None = None


def text_peers(config: Config, vocab: int, folders: Folders, **options: int) -> dict[str, Callable[[], Peer]]:
    """What makes each peer that is there."""
    found: dict[str, Callable[[], Peer]] = {}
    if folders.nanogpt is not None:
        found["nanoGPT"] = partial(nanogpt, config, folders.nanogpt, vocab=vocab, **options)
    if find_spec("transformers"):
        found["transformers"] = partial(hugging_face, config, vocab=vocab, **options)
    if folders.nanochat is not None:
        found["nanochat"] = partial(nanochat, config, folders.nanochat, vocab=vocab, **options)
    return found


def nanochat(config: Config, folder: Path, *, vocab: int, spoken: int = 0) -> Peer:
    """In bfloat16 by its own casts, with the optimizer that the other peers have in place of its Muon."""
    os.environ.setdefault("NANOCHAT_DTYPE", "bfloat16")  # which it reads when it is imported
    if str(folder.resolve()) not in sys.path:
        sys.path.insert(0, str(folder.resolve()))
    theirs = import_module("nanochat.gpt")
    sizes = {"n_layer": config.layers, "n_head": config.heads, "n_kv_head": config.heads, "n_embd": config.d_model}
    with redirect_stdout(StringIO()), torch.device("meta"):  # it prints when it pads the vocabulary
        settings = theirs.GPTConfig(**sizes, sequence_len=config.max_length, vocab_size=vocab, window_pattern="L")
        model = theirs.GPT(settings)
    model = model.to_empty(device=runtime.device())
    model.init_weights()
    return Peer(
        model=model, loss=partial(_loss, model), optimizer=fused_adamw(model), speak=partial(_speak, model, spoken)
    )


def nanochat_speaks() -> bool:
    """Whether the tokenizers are there that its engine imports, though none is used."""
    return all(map(find_spec, ("tiktoken", "rustbpe")))


def _loss(model: nn.Module, ids: Tensor) -> Tensor:
    with torch.autocast(ids.device.type, enabled=False):  # beside which its own casts would be undone
        return model(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())


class NoSpecials:
    """A tokenizer whose special tokens are never generated, so that no text ends early."""

    def encode_special(self, name: str) -> int:
        """No token of the vocabulary."""
        return -1

    def get_bos_token_id(self) -> int:
        """No token of the vocabulary."""
        return -1


def _speak(model: Any, spoken: int, prompt: Tensor) -> None:
    """By its engine, which continues one prompt several times."""
    engine = import_module("nanochat.engine").Engine(model, NoSpecials())
    for _ in engine.generate(prompt[0].tolist(), num_samples=len(prompt), max_tokens=spoken):
        pass
