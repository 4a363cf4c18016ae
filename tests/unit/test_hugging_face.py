"""Hugging Face's models with the same random weights give the same numbers; what a file leaves open is reported."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import transformers
from hypothesis import given, settings, strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

from tfbook.interop.hugging_face import NAMES, Loaded, bert_config, load_hugging_face, our_names, save_hugging_face
from tfbook.models.bert import (
    BERT,
    BERT_BASE,
    BERT_LARGE,
    Bert,
    BertForPretraining,
    Classifier,
    MaskedLanguageModel,
    Tagger,
)
from tfbook.models.bert_variants import Albert
from tfbook.text import IGNORE_INDEX, Masked
from tfbook.training import pretraining_loss

LABELS = 3
POOLER = ("pooler.dense.weight", "pooler.dense.bias")  # part of their body, and of our head


class Peer(NamedTuple):
    """A model of theirs and ours, and what is theirs alone."""

    theirs: type[transformers.PreTrainedModel]
    ours: Callable[[Bert], nn.Module]
    unexpected: tuple[str, ...] = ()


PEERS = {
    "body": Peer(transformers.BertModel, lambda bert: bert, POOLER),
    "hidden words": Peer(transformers.BertForMaskedLM, MaskedLanguageModel),
    "pretraining": Peer(transformers.BertForPreTraining, BertForPretraining),
    "text": Peer(transformers.BertForSequenceClassification, lambda bert: Classifier(bert, LABELS)),
    "tokens": Peer(transformers.BertForTokenClassification, lambda bert: Tagger(bert, LABELS)),
}
every_peer = pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)


def config(**sizes: int) -> transformers.BertConfig:
    """Without dropout, so that training is as exact as the rest; attention written out, which ours is not."""
    return transformers.BertConfig(
        **{"vocab_size": 30, "hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 2}
        | {"intermediate_size": 20, "max_position_embeddings": 10}
        | sizes,
        num_labels=LABELS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="eager",
    )


def random(theirs: type[transformers.PreTrainedModel], config: transformers.BertConfig) -> transformers.PreTrainedModel:
    """Every weight is drawn, those that begin as 0 or 1 as well."""
    model = theirs(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3)
    return model


def built(peer: Peer, state: dict[str, Tensor], heads: int) -> nn.Module:
    """Our model, in the sizes of the state dict and without dropout."""
    vocab, sizes = bert_config(state, heads=heads)
    segments = next(len(weight) for name, weight in state.items() if "token_type" in name)
    return peer.ours(Bert(vocab, dataclasses.replace(sizes, dropout=0.0), segments=segments)).eval()


@pytest.fixture(params=PEERS.values(), ids=PEERS)
def pair(request: pytest.FixtureRequest) -> tuple[Peer, transformers.PreTrainedModel, nn.Module]:
    """Theirs with random weights and ours with others."""
    theirs = random(request.param.theirs, config())
    return request.param, theirs, built(request.param, theirs.state_dict(), heads=3)


# ---- the same numbers --------------------------------------------------------------------------------------------


@st.composite
def configurations(draw: st.DrawFn) -> transformers.BertConfig:
    heads, size = draw(st.integers(1, 4)), st.integers(1, 12)
    return config(
        vocab_size=draw(st.integers(2, 40)),
        hidden_size=heads * draw(st.integers(2, 6)),
        num_attention_heads=heads,
        num_hidden_layers=draw(st.integers(1, 3)),
        intermediate_size=draw(size),
        max_position_embeddings=draw(size),
        type_vocab_size=draw(st.integers(1, 3)),
    )


class Batch(NamedTuple):
    ids: Tensor
    lengths: Tensor
    segments: Tensor

    def theirs(self) -> dict[str, Tensor]:
        """The same under their names."""
        there = torch.arange(self.ids.shape[1]) < self.lengths[:, None]
        return {"input_ids": self.ids, "attention_mask": there.long(), "token_type_ids": self.segments}


def texts(config: transformers.BertConfig, rows: int, time: int) -> Batch:
    """Random ids and segments, and random lengths of which one is the longest."""
    lengths = torch.randint(1, time + 1, (rows,))
    lengths[0] = time
    return Batch(
        torch.randint(config.vocab_size, (rows, time)), lengths, torch.randint(config.type_vocab_size, (rows, time))
    )


def said(peer: Peer, model: nn.Module, batch: Batch) -> list[Tensor]:
    """All that our model says; of what it says of tokens, the padding is left out."""
    there = batch.theirs()["attention_mask"].bool()
    x = model(*batch)
    rows = [x[there] if x.ndim == 3 else x]
    return [*rows, model.next_sentence(model.bert(*batch))] if isinstance(model, BertForPretraining) else rows


def they_said(model: transformers.PreTrainedModel, batch: Batch) -> list[Tensor]:
    """The same of theirs."""
    found = model(**batch.theirs())
    there = batch.theirs()["attention_mask"].bool()
    if isinstance(model, transformers.BertForPreTraining):
        return [found.prediction_logits[there], found.seq_relationship_logits]
    x = found.last_hidden_state if isinstance(model, transformers.BertModel) else found.logits
    return [x[there] if x.ndim == 3 else x]


@every_peer
@given(config=configurations(), rows=st.integers(1, 4), data=st.data(), seed=st.integers(0, 2**32))
@settings(max_examples=25)
@torch.no_grad()
def test_the_same_weights_give_the_same_numbers(
    peer: Peer, config: transformers.BertConfig, rows: int, data: st.DataObject, seed: int
) -> None:
    """Over sizes, padding and segments: within 1e-5 of the numbers' own size."""
    torch.manual_seed(seed)
    theirs = random(peer.theirs, config)
    ours = built(peer, theirs.state_dict(), config.num_attention_heads)
    assert load_hugging_face(ours, theirs.state_dict(), settings=config.to_dict()) == Loaded((), peer.unexpected)
    batch = texts(config, rows, data.draw(st.integers(1, config.max_position_embeddings)))
    for own, other in zip(said(peer, ours, batch), they_said(theirs, batch), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-5 * max(1.0, float(other.std(correction=0))))


def test_both_losses_and_every_gradient_are_the_same() -> None:
    """Of BertForPreTraining in training, dropout 0: hidden words and which sentence follows."""
    peer = PEERS["pretraining"]
    theirs = random(peer.theirs, config()).train()
    ours = built(peer, theirs.state_dict(), heads=3).train()
    load_hugging_face(ours, theirs.state_dict())
    batch = texts(config(), rows=4, time=8)
    hidden = (torch.rand(4, 8) < 0.4) & batch.theirs()["attention_mask"].bool()
    masked = Masked(batch.ids, torch.where(hidden, torch.randint(30, (4, 8)), IGNORE_INDEX))
    labels = torch.tensor([0, 1, 1, 0])
    loss = pretraining_loss(ours, masked, batch.lengths, batch.segments, labels).mean
    other = theirs(**batch.theirs(), labels=masked.targets, next_sentence_label=labels).loss
    torch.testing.assert_close(loss, other, rtol=1e-5, atol=0)
    loss.backward()
    other.backward()
    own = dict(ours.named_parameters())
    for name, weight in theirs.named_parameters():
        (ours_name,) = our_names(name, NAMES["BertForPretraining"])
        gradient = own[ours_name].grad
        torch.testing.assert_close(gradient, weight.grad, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize(("sizes", "millions"), [(BERT_BASE, 110), (BERT_LARGE, 340)], ids=["base", "large"])
def test_base_and_large_have_as_many_parameters_as_theirs(sizes: Any, millions: int) -> None:
    """Devlin et al. (2019, section 3) count 110 and 340 million, to two digits; nothing is computed here."""
    with torch.device("meta"):
        ours = BertForPretraining(Bert(30_522, sizes))
        theirs = transformers.BertForPreTraining(
            transformers.BertConfig(
                hidden_size=sizes.d_model,
                num_attention_heads=sizes.heads,
                num_hidden_layers=sizes.layers,
                intermediate_size=sizes.d_ff,
            )
        )
    count = sum(weight.numel() for weight in ours.parameters())
    assert count == sum(weight.numel() for weight in theirs.parameters())
    assert round(count / 1e7) == millions / 10


# ---- files -------------------------------------------------------------------------------------------------------


def same(model: nn.Module, theirs: transformers.PreTrainedModel, peer: Peer) -> bool:
    """Whether the two agree on one batch."""
    batch = texts(theirs.config, rows=3, time=6)
    pairs = zip(said(peer, model, batch), they_said(theirs, batch), strict=True)
    return all(torch.allclose(own, other, rtol=1e-4, atol=1e-5) for own, other in pairs)


def test_what_save_pretrained_wrote_is_loaded(
    pair: tuple[Peer, transformers.PreTrainedModel, nn.Module], tmp_path: Path
) -> None:
    """Its file holds a tied table once, which is no weight missing."""
    peer, theirs, ours = pair
    theirs.save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    assert "cls.predictions.decoder.weight" not in state
    assert not same(ours, theirs, peer)
    report = load_hugging_face(ours, state)
    assert (report.missing, {*report.unexpected}) == ((), {*peer.unexpected})
    assert same(ours, theirs, peer)


def test_what_torch_saved_is_loaded(pair: tuple[Peer, transformers.PreTrainedModel, nn.Module], tmp_path: Path) -> None:
    peer, theirs, ours = pair
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    state = torch.load(tmp_path / "pytorch_model.bin", weights_only=True)
    assert load_hugging_face(ours, state) == Loaded((), peer.unexpected)
    assert same(ours, theirs, peer)


def test_what_is_saved_is_a_state_dict_of_theirs(pair: tuple[Peer, transformers.PreTrainedModel, nn.Module]) -> None:
    """But for what is theirs alone; tied weights stand there under each of their names."""
    peer, theirs, ours = pair
    state = save_hugging_face(ours)
    assert {*theirs.state_dict()} == state.keys() | {*peer.unexpected}
    theirs.load_state_dict(state, strict=not peer.unexpected)
    assert same(ours, theirs, peer)


def test_norms_may_have_their_old_names(pair: tuple[Peer, transformers.PreTrainedModel, nn.Module]) -> None:
    """Google's files of 2018 say gamma and beta."""
    peer, theirs, ours = pair
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): weight
        for name, weight in theirs.state_dict().items()
    }
    assert load_hugging_face(ours, old) == Loaded((), peer.unexpected)
    assert same(ours, theirs, peer)


def test_a_file_of_half_precision_is_loaded_in_the_precision_of_the_model() -> None:
    theirs = random(transformers.BertForMaskedLM, config()).half()
    ours = built(PEERS["hidden words"], theirs.state_dict(), heads=3)
    load_hugging_face(ours, theirs.state_dict())
    assert torch.equal(ours.bert.embed.weight, theirs.bert.embeddings.word_embeddings.weight.float())


def test_a_body_comes_out_of_any_model_and_goes_into_any() -> None:
    """Pretraining to body, body to classifier: the rest is reported, not guessed."""
    theirs = random(transformers.BertForPreTraining, config())
    body = built(PEERS["body"], theirs.state_dict(), heads=3)
    report = load_hugging_face(body, theirs.state_dict())
    assert report.missing == ()
    assert {name.partition(".")[0] for name in report.unexpected if not name.startswith("bert.pooler.")} == {"cls"}
    classifier = Classifier(Bert(30, body.config), LABELS).eval()
    report = load_hugging_face(classifier, theirs.bert.state_dict())
    assert report == Loaded(("head.label.weight", "head.label.bias"), ())
    batch = texts(theirs.config, rows=3, time=6)
    for ours in (body, classifier.bert):
        torch.testing.assert_close(ours(*batch)[0], theirs.bert(**batch.theirs())[0][0], rtol=1e-4, atol=1e-5)


def test_missing_and_unexpected_weights_are_reported() -> None:
    """What is missing stays as it was."""
    theirs = random(transformers.BertForMaskedLM, config())
    ours = built(PEERS["hidden words"], theirs.state_dict(), heads=3)
    state = dict(theirs.state_dict())
    lacks = "bert.encoder.layer.1.attention.self.key.bias"
    del state[lacks]
    state |= {
        "bert.embeddings.position_ids": torch.arange(10),
        "bert.encoder.layer.2.output.dense.bias": torch.ones(12),
        "lm_head.bias": torch.ones(30),
    }
    name = "bert.stack.blocks.1.mixer.branch.W_K.bias"
    before = ours.get_parameter(name).clone()
    report = load_hugging_face(ours, state)
    extra = ("bert.embeddings.position_ids", "bert.encoder.layer.2.output.dense.bias", "lm_head.bias")
    assert report == Loaded((name,), extra)
    assert str(report) == f"missing: {name}; unexpected: {', '.join(extra)}"
    assert torch.equal(ours.get_parameter(name), before)
    state[lacks] = theirs.state_dict()[lacks]
    assert load_hugging_face(ours, state).missing == ()
    assert str(Loaded((), extra)).startswith("missing: none; unexpected: bert.embeddings.position_ids, ")
    assert str(load_hugging_face(ours, theirs.state_dict())) == "every weight has its place"


def test_a_state_dict_of_another_kind_fills_nothing() -> None:
    ours = MaskedLanguageModel(Bert(30, dataclasses.replace(BERT, d_model=12, heads=3, d_ff=20, max_length=10)))
    report = load_hugging_face(ours, {"transformer.wte.weight": torch.ones(30, 12)})
    assert report == Loaded(tuple(ours.state_dict()), ("transformer.wte.weight",))


# ---- refused -----------------------------------------------------------------------------------------------------


def refused(model: nn.Module, state: dict[str, Tensor], error: type[Exception], message: str) -> None:
    """The message, and no weight changed."""
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with pytest.raises(error, match=message):
        load_hugging_face(model, state)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_a_weight_of_another_shape_is_refused() -> None:
    """The vocabulary comes first in the file, the number of positions does not: nothing has been copied by then."""
    theirs = random(transformers.BertForMaskedLM, config(max_position_embeddings=9))
    ours = built(PEERS["hidden words"], random(transformers.BertForMaskedLM, config()).state_dict(), heads=3)
    message = (
        r"bert.embeddings.position_embeddings.weight has shape \(9, 12\); "
        r"bert.stack.position.embedding.weight of the model has \(10, 12\)"
    )
    refused(ours, theirs.state_dict(), ValueError, message)


def test_two_tables_are_refused_where_the_model_has_one() -> None:
    """Untied, theirs computes what ours cannot."""
    theirs = random(transformers.BertForMaskedLM, config())
    ours = built(PEERS["hidden words"], theirs.state_dict(), heads=3)
    state = theirs.state_dict() | {"cls.predictions.decoder.weight": torch.zeros(30, 12)}
    message = (
        "bert.embeddings.word_embeddings.weight and cls.predictions.decoder.weight differ; "
        "the model has one weight, head.unembed.weight, for both"
    )
    refused(ours, state, ValueError, message)
    state = theirs.state_dict() | {"cls.predictions.decoder.bias": torch.zeros(30)}
    refused(ours, state, ValueError, "cls.predictions.bias and cls.predictions.decoder.bias differ")


@pytest.mark.parametrize("kind", ["albert", "linear"])
def test_a_model_without_names_is_refused(kind: str) -> None:
    sizes = dataclasses.replace(BERT, d_model=12, heads=3, d_ff=20, max_length=10, layers=1)
    model = Albert(30, sizes, d_embed=4) if kind == "albert" else nn.Linear(2, 2)
    state = random(transformers.BertModel, config()).state_dict()
    message = "expected one of Bert, MaskedLanguageModel, BertForPretraining, Classifier, Tagger"
    refused(model, state, TypeError, f"model is a {type(model).__name__}; {message}")


def test_a_model_edited_in_a_notebook_is_known_by_its_name() -> None:
    """A lesson weaves `class Bert` into its own module."""
    theirs = random(transformers.BertModel, config())
    edited = type("Bert", (Bert,), {})
    vocab, sizes = bert_config(theirs.state_dict(), heads=3)
    assert load_hugging_face(edited(vocab, sizes), theirs.state_dict()) == Loaded((), POOLER)


# ---- sizes -------------------------------------------------------------------------------------------------------


@given(config=configurations(), peer=st.sampled_from([*PEERS.values()]))
@settings(max_examples=25)
def test_sizes_are_read_from_the_shapes(config: transformers.BertConfig, peer: Peer) -> None:
    """All but the heads, which no shape shows."""
    state = peer.theirs(config).state_dict()
    vocab, sizes = bert_config(state, heads=config.num_attention_heads)
    assert vocab == config.vocab_size
    assert sizes == dataclasses.replace(
        BERT,
        d_model=config.hidden_size,
        heads=config.num_attention_heads,
        d_ff=config.intermediate_size,
        layers=config.num_hidden_layers,
        max_length=config.max_position_embeddings,
    )


def test_sizes_are_refused_where_they_cannot_be() -> None:
    state = transformers.BertModel(config()).state_dict()
    with pytest.raises(ValueError, match="heads is 5 and d_model is 12; expected heads to divide d_model"):
        bert_config(state, heads=5)
    del state["embeddings.position_embeddings.weight"]
    with pytest.raises(ValueError, match=r"state lacks 'embeddings.position_embeddings.weight', which every BERT has"):
        bert_config(state, heads=3)
