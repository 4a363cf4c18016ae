"""Whatever family gives its layers the names of ours: its weights are loaded right, refused, or reported incomplete."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tfbook.interop.hugging_face import (
    Loaded,
    bert_config,
    gpt_config,
    load_hugging_face,
    save_hugging_face,
    vit_config,
)
from tfbook.models.bert import Bert, BertForPretraining, Classifier, MaskedLanguageModel, Tagger
from tfbook.models.gpt import Gpt
from tfbook.models.vit import Deit, Vit

# Every name that some family has for a size; all sizes are small, and dropout is off.
SMALL: dict[str, Any] = (
    dict.fromkeys(("vocab_size",), 40)
    | dict.fromkeys(("hidden_size", "n_embd", "d_model", "dim", "embedding_size"), 12)
    | dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 3)
    | dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2)
    | dict.fromkeys(("intermediate_size", "n_inner", "hidden_dim"), 20)
    | dict.fromkeys(("max_position_embeddings", "n_positions"), 20)
    | dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout"), 0.0)
    | dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    | {"type_vocab_size": 1, "image_size": 8, "patch_size": 4, "num_channels": 3, "num_labels": 3, "pad_token_id": 1}
)
TEXT = """roberta xlm-roberta camembert data2vec-text electra ernie splinter bert-generation big_bird layoutlm
longformer nystromformer yoso mra xmod megatron-bert mpnet deberta deberta-v2 distilbert convbert ibert
roberta-prelayernorm xlm-roberta-xl albert visual_bert squeezebert modernbert esm tapas fnet roformer markuplm lilt
bros layoutlmv3 bert"""
DECODERS = "gpt2 gpt_neo gptj gpt_bigcode opt openai-gpt imagegpt codegen gpt_neox bloom xglm biogpt falcon mpt"
IMAGES = """vit deit beit data2vec-vision dinov2 dinov2_with_registers vit_mae vit_msn ijepa dpt yolos vivit vilt
timesformer swin audio-spectrogram-transformer pixio"""
SPECIAL = {  # where a size goes by another form
    "gpt_neo": {"attention_types": [[["global"], 2]]},
    "yolos": {"image_size": [8, 8]},
    "swin": {"num_heads": [3, 3], "depths": [1, 1], "embed_dim": 12},
}


def config_of(kind: str, **changes: Any) -> Any:
    """A small config of a family; skips one that this version of the library does not have."""
    if kind not in CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {kind}")
    made = CONFIG_MAPPING[kind]
    known = {name: value for name, value in SMALL.items() if hasattr(made(), name)}
    return made(**known | SPECIAL.get(kind, {}) | changes)


def drawn(config: Any, auto: Any) -> nn.Module:
    """A model with every weight drawn; skips where the family has no such model, or none that is small."""
    try:
        with torch.device("meta"):
            size = sum(weight.numel() for weight in auto.from_config(config).parameters())
        model = auto.from_config(config).eval() if size < 5_000_000 else None
    except Exception as error:
        pytest.skip(f"cannot be made: {error}")
    if model is None:
        pytest.skip("has a size that cannot be made small")
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3)
    return model


def states(model: nn.Module, folder: Path) -> list[dict[str, Tensor]]:
    """As in memory and as in a file, whose names may differ."""
    model.save_pretrained(folder)
    return [model.state_dict(), load_file(folder / "model.safetensors")]


def bert(state: dict[str, Tensor], settings: dict[str, Any] | None, heads: int = 3) -> Bert:
    vocab, config = bert_config(state, heads=heads, settings=settings)
    types = next((len(each) for name, each in state.items() if "token_type_embeddings.weight" in name), 1)
    return Bert(vocab, replace(config, dropout=0.0), segments=types).eval()


def close(ours: Tensor, theirs: Tensor) -> bool:
    scale = max(1.0, float(theirs.detach().std()))
    return ours.shape == theirs.shape and torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5 * scale)


Build = Callable[[dict[str, Tensor], dict[str, Any] | None], nn.Module]


def outcome(build: Build, state: dict[str, Tensor], settings: Any, equal: Callable[..., bool]) -> str:
    """ "equal", "missing" or the reason for which it was refused; anything else is a failure."""
    try:
        ours = build(state, settings)
        report = load_hugging_face(ours, state, settings=settings)
    except ValueError as error:
        return str(error)
    if any("head" not in name and "imitation" not in name for name in report.missing):
        return "missing"
    with torch.no_grad():
        assert equal(ours), f"loaded, and differs; {report}"
    return "equal"


IDS = torch.randint(2, 40, (2, 9), generator=torch.Generator().manual_seed(0))
PIXELS = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
LENGTHS = torch.tensor([9, 9])
COMPATIBLE = {"bert", "electra", "ernie", "splinter", "gpt2", "vit", "deit", "vit_msn", "ijepa", "dpt"}


# ---- by names alone ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TEXT.split())
def test_bodies_of_text(kind: str, tmp_path: Path) -> None:
    """Without a config.json; BERT's own with one type of tokens is no exception, since nothing tells it apart."""
    theirs = drawn(config_of(kind), transformers.AutoModel)
    for state in states(theirs, tmp_path):
        found = outcome(
            bert,
            state,
            None,
            lambda ours: close(ours(IDS, LENGTHS), theirs(IDS).last_hidden_state),
        )
        assert found != "equal" or kind in COMPATIBLE
        if kind in ("roberta", "xlm-roberta", "camembert", "bert"):
            assert "whose positions begin at 2" in found


@pytest.mark.parametrize("kind", sorted(COMPATIBLE & {*TEXT.split()}))
def test_bodies_with_two_types_of_tokens(kind: str, tmp_path: Path) -> None:
    theirs = drawn(config_of(kind, type_vocab_size=2), transformers.AutoModel)
    for state in states(theirs, tmp_path):
        assert close(bert_of(state)(IDS, LENGTHS), theirs(IDS).last_hidden_state)


def trained(config: Any) -> nn.Module:
    """A body after three steps from the library's initialization, which leave the vector of padding as it was."""
    model = transformers.AutoModel.from_config(config)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        output = model(IDS).last_hidden_state
        (output * torch.randn_like(output)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@pytest.mark.parametrize(
    ("kind", "positions", "sign"),
    [
        *((kind, 20, "zeros as position 1") for kind in ("roberta", "xlm-roberta", "camembert", "data2vec-text")),
        ("mra", 512, "514 positions"),  # which adds 2 itself
        ("yoso", 512, "514 positions"),
    ],
)
def test_bodies_whose_positions_begin_at_2(kind: str, positions: int, sign: str, tmp_path: Path) -> None:
    """Two types of tokens, the default of RoBERTa's config in the library, do not make it a BERT."""
    theirs = trained(config_of(kind, type_vocab_size=2, max_position_embeddings=positions))
    for state in states(theirs, tmp_path):
        with pytest.raises(ValueError, match=f"state has {sign} and names without a prefix.*begin at 2"):
            load_hugging_face(bert(state, None), state)


@pytest.mark.parametrize("positions", [130, 514, 4098])
def test_a_padding_position_that_was_not_kept_at_zero(positions: int) -> None:
    """As where the whole matrix was drawn."""
    theirs = drawn(config_of("roberta", type_vocab_size=2, max_position_embeddings=positions), transformers.AutoModel)
    state = theirs.state_dict()
    with pytest.raises(ValueError, match=f"state has {positions} positions and names without a prefix"):
        load_hugging_face(bert(state, None), state)


@pytest.mark.parametrize("positions", [18, 512, 515, 1024])
def test_a_bert_of_any_other_length_is_none_of_these(positions: int) -> None:
    theirs = drawn(config_of("bert", type_vocab_size=2, max_position_embeddings=positions), transformers.AutoModel)
    state = theirs.state_dict()
    assert close(bert_of(state)(IDS, LENGTHS), theirs(IDS).last_hidden_state)
    state["embeddings.position_embeddings.weight"].zero_()  # as some begin: BERT's vector of padding is no other's
    assert close(bert_of(state)(IDS, LENGTHS), theirs(IDS).last_hidden_state)


def test_settings_say_that_a_bert_of_514_positions_is_one() -> None:
    config = config_of("bert", type_vocab_size=2, max_position_embeddings=514)
    theirs = drawn(config, transformers.AutoModel)
    ours = bert(theirs.state_dict(), config.to_dict())
    load_hugging_face(ours, theirs.state_dict(), settings=config.to_dict())
    assert close(ours(IDS, LENGTHS), theirs(IDS).last_hidden_state)


def bert_of(state: dict[str, Tensor]) -> Bert:
    ours = bert(state, None)
    assert load_hugging_face(ours, state).missing == ()
    return ours


def masked(state: dict[str, Tensor], settings: dict[str, Any] | None) -> MaskedLanguageModel:
    return MaskedLanguageModel(bert(state, settings)).eval()


@pytest.mark.parametrize("kind", TEXT.split())
def test_masked_language_models(kind: str, tmp_path: Path) -> None:
    theirs = drawn(
        config_of(kind, type_vocab_size=2) if kind == "bert" else config_of(kind), transformers.AutoModelForMaskedLM
    )
    for state in states(theirs, tmp_path):
        found = outcome(
            masked,
            state,
            None,
            lambda ours: close(ours(IDS, LENGTHS), theirs(IDS).logits),
        )
        assert (found == "equal") == (kind == "bert")


@pytest.mark.parametrize("kind", DECODERS.split())
def test_decoders(kind: str, tmp_path: Path) -> None:
    theirs = drawn(config_of(kind), transformers.AutoModelForCausalLM)
    for state in states(theirs, tmp_path):
        found = outcome(gpt, state, None, lambda ours: close(ours(IDS), theirs(IDS).logits))
        assert (found == "equal") == (kind == "gpt2")


def gpt(state: dict[str, Tensor], settings: dict[str, Any] | None) -> Gpt:
    vocab, config = gpt_config(state, heads=3, settings=settings)
    return Gpt(vocab, replace(config, dropout=0.0)).eval()


def test_norms_without_biases_are_another_family_s() -> None:
    theirs = drawn(config_of("imagegpt"), transformers.AutoModel)
    with pytest.raises(ValueError, match=r"state has a weight and no bias for stack\.blocks\.\{\}\.mixer\.norm"):
        load_hugging_face(gpt(theirs.state_dict(), None), theirs.state_dict())


CHANGED = {
    "beit": {"use_absolute_position_embeddings": True},
    "data2vec-vision": {"use_absolute_position_embeddings": True},
}
PLAIN = {"use_relative_position_bias": False, "layer_scale_init_value": 0.0, "use_mean_pooling": False}


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("kind", IMAGES.split())
def test_bodies_of_images(kind: str, plain: bool, tmp_path: Path) -> None:
    """Also BEiT without all that is special about it but its keys, which have no bias."""
    changes = CHANGED.get(kind, {}) | (PLAIN if plain and kind in CHANGED else {})
    if plain and not changes:
        pytest.skip("is plain already")
    theirs = drawn(config_of(kind, **changes), transformers.AutoModel)
    for state in states(theirs, tmp_path):
        found = outcome(image_model, state, None, lambda ours: equal_bodies(ours, theirs))
        assert found != "equal" or kind in COMPATIBLE | {"vit_mae"}


def image_model(state: dict[str, Tensor], settings: dict[str, Any] | None, labels: int = 3) -> Vit:
    config = vit_config(state, heads=3, settings=settings)
    return (Deit if config.tokens == 2 else Vit)(labels, config).eval()


def equal_bodies(ours: Vit, theirs: nn.Module) -> bool:
    """All positions; MAE's come in an order of its own, but for the class token."""
    found = theirs(PIXELS).last_hidden_state
    if theirs.config.model_type == "vit_mae":
        theirs.config.mask_ratio = 0.0
        return close(ours.representations(PIXELS)[:, 0], theirs(PIXELS).last_hidden_state[:, 0])
    return close(ours.representations(PIXELS), found)


def test_a_distilled_model_is_no_vit() -> None:
    theirs = drawn(config_of("deit"), transformers.AutoModel)
    config = vit_config(theirs.state_dict(), heads=3)
    with pytest.raises(ValueError, match=r"state has embeddings\.distillation_token, for which a Vit has no place"):
        load_hugging_face(Vit(3, config), theirs.state_dict())


# ---- by settings -------------------------------------------------------------------------------------------------


def draw_settings(dice: Random, kind: str) -> dict[str, Any]:
    """What no weight shows, at random."""
    act = dice.choice(["gelu", "gelu_new", "relu", "silu", "gelu_pytorch_tanh", "quick_gelu", "tanh"])
    epsilon = dice.choice([1e-12, 1e-5, 1e-3, 0.1])
    if kind == "gpt2":
        switches = {name: dice.random() < 0.25 for name in ("scale_attn_by_inverse_layer_idx", "add_cross_attention")}
        scale = {"scale_attn_weights": dice.random() < 0.75, "reorder_and_upcast_attn": dice.random() < 0.5}
        return {"activation_function": act, "layer_norm_epsilon": epsilon, **switches, **scale}
    act = dice.choice([act, "gelu", "gelu"])
    more = {"qkv_bias": dice.random() < 0.8} if kind in IMAGES.split() else {"is_decoder": dice.random() < 0.2}
    if kind not in IMAGES.split():
        more["type_vocab_size"] = dice.choice([1, 2])
    return {"hidden_act": act, "layer_norm_eps": epsilon, **more}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    "kind",
    ["bert", "roberta", "xlm-roberta", "camembert", "electra", "ernie", "big_bird", "gpt2", "vit", "deit", "vit_msn"],
)
def test_settings_are_obeyed_or_refused(kind: str, seed: int, tmp_path: Path) -> None:
    dice = Random(f"{kind} {seed}")
    torch.manual_seed(seed)
    chosen = draw_settings(dice, kind)
    config = config_of(kind, **chosen)
    text = kind not in IMAGES.split()
    build = gpt if kind == "gpt2" else bert if text else image_model
    auto = transformers.AutoModelForCausalLM if kind == "gpt2" else transformers.AutoModel

    def equal(ours: nn.Module) -> bool:
        if isinstance(ours, Gpt):
            return close(ours(IDS), theirs(IDS).logits)
        return close(ours(IDS, LENGTHS), theirs(IDS).last_hidden_state) if text else equal_bodies(ours, theirs)

    theirs = drawn(config, auto)
    state, settings = states(theirs, tmp_path)[seed % 2], config.to_dict()
    found = outcome(build, state, settings, equal)
    act = chosen.get("hidden_act", "gelu")
    plain = not chosen.get("is_decoder") and chosen.get("qkv_bias", True) and chosen.get("scale_attn_weights", True)
    plain = plain and not any(chosen.get(name) for name in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"))
    known = kind in COMPATIBLE and act == "gelu" and chosen.get("activation_function") != "quick_gelu"
    assert (found == "equal") == (plain and known), found


def test_a_model_is_compared_with_the_settings_when_it_is_filled() -> None:
    """Its own config may be another one than the library's."""
    config = config_of("gpt2", activation_function="relu", layer_norm_epsilon=1e-3)
    theirs = drawn(config, transformers.AutoModelForCausalLM)
    state, settings = theirs.state_dict(), config.to_dict()
    with pytest.raises(ValueError, match=r"of the model has eps 1e-05; settings have 0\.001"):
        load_hugging_face(gpt(state, None), state, settings=settings)
    with pytest.raises(ValueError, match="of the model has another activation; settings have relu"):
        load_hugging_face(gpt(state, settings | {"activation_function": "gelu"}), state, settings=settings)
    vocab, other = gpt_config(state, heads=2, settings=settings | {"n_head": 2})
    with pytest.raises(ValueError, match="heads is 2; settings have n_head 3"):
        load_hugging_face(Gpt(vocab, other), state, settings=settings)
    with pytest.raises(ValueError, match="heads is 4; settings have n_head 3"):
        gpt_config(state, heads=4, settings=settings)
    with pytest.raises(ValueError, match="settings are of model_type None; expected gpt2"):
        gpt_config(state, heads=3, settings={})


@pytest.mark.parametrize("shape", [(9,), (2, 3, 4), ()])
def test_a_crafted_shape_is_named(shape: tuple[int, ...]) -> None:
    state = drawn(config_of("bert"), transformers.AutoModel).state_dict()
    name = "embeddings.word_embeddings.weight"
    with pytest.raises(ValueError, match=rf"{name} has shape .*; expected 2 axes"):
        bert_config(state | {name: torch.zeros(shape)}, heads=3)
    state = drawn(config_of("vit"), transformers.AutoModel).state_dict()
    with pytest.raises(
        ValueError, match=r"state has patches and positions of shapes .*; expected \(d, channels, p, p\)"
    ):
        vit_config(state | {"embeddings.patch_embeddings.projection.weight": torch.zeros(shape)}, heads=3)


# ---- files of safetensors ----------------------------------------------------------------------------------------

BERT_STATE = {"type_vocab_size": 2}
SAVED: dict[str, Callable[[], nn.Module]] = {
    "Gpt": lambda: gpt(drawn(config_of("gpt2"), transformers.AutoModelForCausalLM).state_dict(), None),
    "Vit": lambda: image_model(drawn(config_of("vit"), transformers.AutoModel).state_dict(), None),
    "Deit": lambda: image_model(drawn(config_of("deit"), transformers.AutoModel).state_dict(), None),
    **{
        kind.__name__: lambda kind=kind, more=more: kind(
            bert(drawn(config_of("bert", **BERT_STATE), transformers.AutoModel).state_dict(), None), *more
        )
        for kind, more in ((MaskedLanguageModel, ()), (BertForPretraining, ()), (Classifier, (3,)), (Tagger, (3,)))
    },
}


@pytest.mark.parametrize("kind", SAVED)
def test_what_is_saved_fits_into_a_file(kind: str, tmp_path: Path) -> None:
    """Without shared memory, which the format refuses; and comes back bit by bit."""
    model, twin = SAVED[kind](), SAVED[kind]()
    state = save_hugging_face(model)
    assert len({weight.untyped_storage().data_ptr() for weight in state.values()}) == len(state)
    save_file(state, tmp_path / "model.safetensors")
    assert load_hugging_face(twin, load_file(tmp_path / "model.safetensors")) == Loaded((), ())
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, twin.state_dict()[name]), name
