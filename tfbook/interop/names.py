"""The names of Hugging Face's layers, each with the names of ours that hold the same weights."""

from __future__ import annotations

from collections.abc import Mapping

Rules = Mapping[str, tuple[str, ...]]  # their layer, {} for the number of a block → ours; several lie side by side

_BERT_BODY = {
    "embeddings.word_embeddings": ("embed",),
    "embeddings.token_type_embeddings": ("segments",),
    "embeddings.position_embeddings": ("stack.position.embedding",),
    "embeddings.LayerNorm": ("stack.embed_norm",),
    "encoder.layer.{}.attention.self.query": ("stack.blocks.{}.mixer.branch.W_Q",),
    "encoder.layer.{}.attention.self.key": ("stack.blocks.{}.mixer.branch.W_K",),
    "encoder.layer.{}.attention.self.value": ("stack.blocks.{}.mixer.branch.W_V",),
    "encoder.layer.{}.attention.output.dense": ("stack.blocks.{}.mixer.branch.W_O",),
    "encoder.layer.{}.attention.output.LayerNorm": ("stack.blocks.{}.mixer.norm",),
    "encoder.layer.{}.intermediate.dense": ("stack.blocks.{}.feed_forward.branch.up",),
    "encoder.layer.{}.output.dense": ("stack.blocks.{}.feed_forward.branch.down",),
    "encoder.layer.{}.output.LayerNorm": ("stack.blocks.{}.feed_forward.norm",),
}
_BERT = {f"bert.{theirs}": tuple(f"bert.{name}" for name in ours) for theirs, ours in _BERT_BODY.items()}
_WORD_HEAD = {
    "cls.predictions.transform.dense": ("head.layer",),
    "cls.predictions.transform.LayerNorm": ("head.norm",),
    "cls.predictions.decoder": ("head.unembed",),
    "cls.predictions.bias": ("head.unembed.bias",),
}
_GPT = {
    "transformer.wte": ("embed",),
    "transformer.wpe": ("stack.position.embedding",),
    "transformer.h.{}.ln_1": ("stack.blocks.{}.mixer.norm",),
    "transformer.h.{}.attn.c_attn": tuple("stack.blocks.{}.mixer.branch.W_" + name for name in "QKV"),
    "transformer.h.{}.attn.c_proj": ("stack.blocks.{}.mixer.branch.W_O",),
    "transformer.h.{}.ln_2": ("stack.blocks.{}.feed_forward.norm",),
    "transformer.h.{}.mlp.c_fc": ("stack.blocks.{}.feed_forward.branch.up",),
    "transformer.h.{}.mlp.c_proj": ("stack.blocks.{}.feed_forward.branch.down",),
    "transformer.ln_f": ("stack.norm",),
    "lm_head": ("unembed",),
}
_BLOCK = (
    "stack.blocks.{}.mixer.norm",
    *("stack.blocks.{}.mixer.branch.W_" + name for name in "QKVO"),
    "stack.blocks.{}.feed_forward.norm",
    "stack.blocks.{}.feed_forward.branch.up",
    "stack.blocks.{}.feed_forward.branch.down",
)


def _block(prefix: str, *theirs: str) -> Rules:
    """Their layers of a block, in the order of ours."""
    return {f"{prefix}.{{}}.{name}": (ours,) for name, ours in zip(theirs, _BLOCK, strict=True)}


_VIT_BODY = {
    "embeddings.cls_token": ("tokens.0",),
    "embeddings.position_embeddings": ("stack.position.embedding",),
    "embeddings.patch_embeddings.projection": ("patches",),
    "layernorm": ("stack.norm",),
    **_block(
        "encoder.layer",
        *("layernorm_before", "attention.attention.query", "attention.attention.key", "attention.attention.value"),
        *("attention.output.dense", "layernorm_after", "intermediate.dense", "output.dense"),
    ),
}
VIT_IN_MEMORY = _block(  # since transformers 5, whose files keep the names above
    "layers",
    *("layernorm_before", "attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj"),
    *("layernorm_after", "mlp.fc1", "mlp.fc2"),
)
_VIT, _DEIT = ({f"{kind}.{theirs}": ours for theirs, ours in _VIT_BODY.items()} for kind in ("vit", "deit"))
NAMES: dict[str, Rules] = {  # by the name of the class, so that one edited in a notebook is known as well
    "Bert": _BERT_BODY,
    "MaskedLanguageModel": _BERT | _WORD_HEAD,
    "BertForPretraining": _BERT
    | _WORD_HEAD
    | {"bert.pooler.dense": ("next_sentence.pool",), "cls.seq_relationship": ("next_sentence.label",)},
    "Classifier": _BERT | {"bert.pooler.dense": ("head.pool",), "classifier": ("head.label",)},
    "Tagger": _BERT | {"classifier": ("head.1",)},
    "Gpt": _GPT,
    "Vit": _VIT | {"classifier": ("head",)},
    "Deit": _DEIT
    | {
        "deit.embeddings.distillation_token": ("tokens.1",),
        "cls_classifier": ("head",),
        "distillation_classifier": ("imitation",),
    },
}
