"""Published weights from the Hugging Face hub, in our own models: MiniLM for search, GPT-2, ViT-B/16.

A revision and the SHA-256 of each file are fixed here, so the same bytes come from the hub, from a server that stands
in for it and from the cache, or an error. `huggingface_hub` says where the hub and its cache are. It does not download,
since it would put files where the server's headers say, of any size and in any time, and compare no hash; so bytes
come by `tfbook.data.transfer`, are hashed before they are read, and lie in the cache under that hash.

The cache is that of `huggingface_hub`, so that what transformers or sentence-transformers have fetched is not fetched
again; where TFBOOK_DATA names a folder for all data of the course, its subfolder `huggingface` is used instead.

| variable | meaning |
|---|---|
| `TFBOOK_DATA` | the cache is `huggingface` in this folder (default: `huggingface_hub`'s own) |
| `HF_HOME`, `HF_HUB_CACHE` | where `huggingface_hub`'s own cache is (default: `~/.cache/huggingface`) |
| `HF_ENDPOINT` | a server that speaks the hub's protocol, in place of https://huggingface.co |
| `HF_HUB_OFFLINE`, `TFBOOK_OFFLINE` | `1` forbids the network; the cache is still used |
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from tfbook.interop.hub_files import HubFile, HubModel, fetch_from_hub
from tfbook.interop.hugging_face import bert_config, gpt_config, load_hugging_face, vit_config
from tfbook.models.bert import Bert
from tfbook.models.gpt import Gpt
from tfbook.models.sentence_encoder import SentenceEncoder
from tfbook.models.vit import Vit
from tfbook.text.tokenizer import Tokenizer

M = TypeVar("M", bound=nn.Module)

MINILM = HubModel(
    repository="sentence-transformers/all-MiniLM-L6-v2",
    revision="1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
    license="Apache 2.0",
    heads=12,
    files=(
        HubFile(
            name="model.safetensors",
            size=90_868_376,
            sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
        HubFile(
            name="tokenizer.json",
            size=466_247,
            sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        ),
    ),
)
GPT2_MODELS = {
    "gpt2": HubModel(
        repository="openai-community/gpt2",
        revision="607a30d783dfa663caf39e06633721c8d4cfcd7e",
        license="MIT",
        heads=12,
        files=(
            HubFile(
                name="model.safetensors",
                size=548_105_171,
                sha256="248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707",
            ),
            HubFile(
                name="tokenizer.json",
                size=1_355_256,
                sha256="8414cab924d8b9b33013f0d221c5862f365ee9be39c5c2bfae8a5a9e970478a6",
            ),
        ),
    )
}
VIT_B16 = HubModel(
    repository="google/vit-base-patch16-224",
    revision="3f49326eb077187dfe1c2a2bb15fbd74e6ab91e3",
    license="Apache 2.0",
    heads=12,
    files=(
        HubFile(
            name="model.safetensors",
            size=346_293_852,
            sha256="1cea07110a4a47edc51420b2dda6f3b8b58e7256e8f44b4ea6aa9696162ccb5d",
        ),
    ),
)


def load_minilm(model: HubModel = MINILM) -> SentenceEncoder:
    """MiniLM, six layers of width 384 that turn a text into a vector (Wang et al., 2020), in our own BERT.

    91 MB, once; says so before it fetches them. Distilled from a larger BERT and then trained on a billion pairs of
    texts that belong together. It reads 256 tokens, as it was published, and cuts the rest. Its tokenizer is of the
    `tokenizers` library, since it does more than our `WordPiece`: it strips accents and control characters, takes
    Chinese letters apart, makes all small. Raises DataUnavailable as `fetch_from_hub` does.
    """
    from tokenizers import Tokenizer as Library

    paths = fetch_from_hub(model)
    state = _read(paths["model.safetensors"])
    bert = _filled(lambda: Bert(*bert_config(state, heads=model.heads)), state)
    longest = min(256, bert.config.max_length)
    return SentenceEncoder(bert, Library.from_file(str(paths["tokenizer.json"])), max_length=longest).eval()


def load_gpt2(name: str = "gpt2") -> tuple[Gpt, Tokenizer]:
    """GPT-2 with its published weights, and its tokenizer (Radford et al., 2019).

    "gpt2", the small one: 549 MB, once; says so before it fetches them. Raises ValueError for another name than those
    of `GPT2_MODELS`, and DataUnavailable as `fetch_from_hub` does.
    """
    if name not in GPT2_MODELS:
        raise ValueError(f"name is {name!r}; expected one of {', '.join(GPT2_MODELS)}")
    model = GPT2_MODELS[name]
    paths = fetch_from_hub(model)
    state = _read(paths["model.safetensors"])
    gpt = _filled(lambda: Gpt(*gpt_config(state, heads=model.heads)), state)
    return gpt, Tokenizer.load(paths["tokenizer.json"])


def load_vit_b16(model: HubModel = VIT_B16) -> Vit:
    """ViT-B/16, trained on 14 million images and then on ImageNet's 1,000 classes (Dosovitskiy et al., 2021).

    346 MB, once; says so before it fetches them. It takes images of 224 × 224 with numbers from −1 to 1; the names of
    the classes, in this order, are in torchvision's `ViT_B_16_Weights.IMAGENET1K_V1.meta["categories"]`. Raises
    DataUnavailable as `fetch_from_hub` does.
    """
    state = _read(fetch_from_hub(model)["model.safetensors"])
    labels = len(state["classifier.bias"])
    return _filled(lambda: Vit(labels, vit_config(state, heads=model.heads)), state)


def _read(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(path)


def _filled(build: Callable[[], M], state: dict[str, Tensor]) -> M:
    """The model with these weights, ready to use.

    What follows draws the same random numbers whether a model could be loaded or not, so a lesson is the same offline.
    """
    with torch.random.fork_rng(devices=[]):
        model = build()
    if missing := load_hugging_face(model, state).missing:
        raise ValueError(f"the file lacks {', '.join(missing)}; expected every weight of a {type(model).__name__}")
    return model.eval()
