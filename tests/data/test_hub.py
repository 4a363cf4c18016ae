"""Published weights, whatever hub, network and disk do: the right bytes in our own model, or one message."""

import errno
import hashlib
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import tokenizers
import torch
import transformers
from hub_server import Hub
from loopback import Reply, Server, answer, hang_up, redirect
from safetensors.torch import save
from tokenizers import normalizers, pre_tokenizers, processors
from torch.nn import functional as F

from tfbook.data.download import DataUnavailable
from tfbook.interop import hub
from tfbook.interop.hub import MINILM, HubFile, HubModel, load_gpt2, load_minilm, load_vit_b16
from tfbook.interop.hub_files import hub_cache
from tfbook.models.sentence_encoder import SemanticIndex, SentenceEncoder, mean_pooled
from tfbook.text import Tokenizer

ROOT = Path(__file__).parents[2]
WEIGHTS = "model.safetensors"
TEXTS = [
    "The cat sat on the mat.",
    "a dog",
    "",
    "Café dog, CAT! the the the dog on a mat",
    "an unknown word",
]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "sat", "on", "a", "mat", "cafe", ",", "!"]
POSITIONS = 24


# ---- small models in the layout of the published ones ------------------------------------------------------------


def bert(**options: object) -> transformers.BertModel:
    """Theirs with random weights, those that begin as 0 or 1 as well."""
    sizes = {"vocab_size": len(WORDS), "hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 2}
    return drawn(
        transformers.BertModel(
            transformers.BertConfig(
                **sizes, intermediate_size=20, max_position_embeddings=POSITIONS, attn_implementation="sdpa"
            )
        )
    )


def drawn(model: transformers.PreTrainedModel) -> transformers.PreTrainedModel:
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3)
    return model.eval()


def weights_of(model: transformers.PreTrainedModel, folder: Path) -> bytes:
    """The file as their library writes it."""
    model.save_pretrained(folder)
    return (folder / WEIGHTS).read_bytes()


def wordpiece() -> tokenizers.Tokenizer:
    """All parts of MiniLM's, with few words; like it, it cuts and fills up to another length than the encoder's."""
    pieces = {word: number for number, word in enumerate(WORDS)}
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(pieces, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.enable_truncation(8)
    made.enable_padding(length=8)
    return made


def published(like: HubModel, repository: str, files: Mapping[str, bytes], heads: int) -> HubModel:
    """The record of such files, as `hub` has it of the real ones."""
    listed = tuple(
        HubFile(name=name, size=len(body), sha256=hashlib.sha256(body).hexdigest()) for name, body in files.items()
    )
    return replace(like, repository=repository, heads=heads, files=listed)


class Small:
    """MiniLM in small: their model, its files, our record of them."""

    def __init__(self, folder: Path):
        self.theirs = bert()
        self.files = {
            WEIGHTS: weights_of(self.theirs, folder),
            "tokenizer.json": wordpiece().to_str().encode(),
        }
        self.model = published(MINILM, "small/minilm", self.files, heads=3)

    @torch.no_grad()
    def vectors(self, texts: Sequence[str]) -> torch.Tensor:
        """Each text alone through theirs, pooled and divided by its length."""
        made, rows = wordpiece(), []
        made.no_padding()
        made.enable_truncation(POSITIONS)
        for text in texts:
            x = self.theirs(torch.tensor([made.encode(text).ids])).last_hidden_state
            rows.append(F.normalize(x.mean(dim=1), dim=-1)[0])
        return torch.stack(rows)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    torch.manual_seed(0)
    return Small(tmp_path_factory.mktemp("small"))


@pytest.fixture
def served(server: Server, small: Small, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A hub that has the small model, an empty cache, the network allowed, no pause between attempts."""
    offered = Hub({f"small/minilm/{name}": body for name, body in small.files.items()})
    server.replies = [offered]
    monkeypatch.setenv("HF_ENDPOINT", server.url("").rstrip("/"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return offered


def equal_to_theirs(encoder: SentenceEncoder, small: Small) -> bool:
    return torch.allclose(encoder.encode(TEXTS), small.vectors(TEXTS), rtol=1e-5, atol=1e-6)


def blobs(folder: Path) -> set[bytes]:
    """What the cache holds for good."""
    return {path.read_bytes() for path in folder.glob("huggingface/*/blobs/*")}


# ---- the cache and the network -----------------------------------------------------------------------------------


class TestLoading:
    def test_the_first_load_says_what_it_fetches_and_the_second_asks_nothing(
        self, served: Hub, server: Server, small: Small, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert equal_to_theirs(load_minilm(small.model), small)
        size = f"{sum(map(len, small.files.values())) / 1e3:,.1f} kB"
        place = f"from {server.url('').rstrip('/')} into {cache / 'huggingface'}, once"
        assert capsys.readouterr().out == f"small/minilm (license Apache 2.0): fetching {size} {place}\n"
        assert {line.rpartition("/")[2] for line in server.asked if line.startswith("GET /small")} == {*small.files}
        server.asked.clear()
        assert equal_to_theirs(load_minilm(small.model), small)
        assert capsys.readouterr().out == ""
        assert server.asked == []

    def test_the_real_one_is_announced_with_its_size(self) -> None:
        assert str(MINILM) == "sentence-transformers/all-MiniLM-L6-v2 (91 MB, Apache 2.0)"
        assert str(hub.GPT2_MODELS["gpt2"]) == "openai-community/gpt2 (549 MB, MIT)"
        assert str(hub.VIT_B16) == "google/vit-base-patch16-224 (346 MB, Apache 2.0)"

    def test_only_what_is_missing_is_fetched(
        self, served: Hub, server: Server, small: Small, capsys: pytest.CaptureFixture[str]
    ) -> None:
        load_minilm(small.model)
        [snapshot] = hub_cache().glob("*/snapshots/*")
        (snapshot / "tokenizer.json").resolve().unlink()
        (snapshot / "tokenizer.json").unlink()
        server.asked.clear()
        assert equal_to_theirs(load_minilm(small.model), small)
        assert {line.rpartition("/")[2] for line in server.asked if "/small/" in line} == {"tokenizer.json"}

    def test_what_another_program_fetched_at_another_commit_is_used(
        self, served: Hub, server: Server, small: Small, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Where the bytes are the same; others stay as they are."""
        other = replace(small.model, revision="f" * 40)
        load_minilm(other)
        [snapshot] = hub_cache().glob("*/snapshots/*")
        server.asked.clear()
        capsys.readouterr()
        assert equal_to_theirs(load_minilm(small.model), small)
        assert (server.asked, capsys.readouterr().out) == ([], "")
        (snapshot / WEIGHTS).resolve().write_bytes(b"of another model")
        assert equal_to_theirs(load_minilm(replace(small.model, revision="e" * 40)), small)
        assert (snapshot / WEIGHTS).exists()

    @pytest.mark.parametrize("variable", ["TFBOOK_OFFLINE", "HF_HUB_OFFLINE"])
    def test_offline_the_cache_is_enough(
        self, served: Hub, server: Server, small: Small, monkeypatch: pytest.MonkeyPatch, variable: str
    ) -> None:
        load_minilm(small.model)
        self.forbid(variable, monkeypatch)
        server.asked.clear()
        assert equal_to_theirs(load_minilm(small.model), small)
        assert server.asked == []

    @pytest.mark.parametrize("variable", ["TFBOOK_OFFLINE", "HF_HUB_OFFLINE"])
    def test_offline_without_the_cache_one_message_says_what_to_do(
        self, served: Hub, server: Server, small: Small, monkeypatch: pytest.MonkeyPatch, variable: str
    ) -> None:
        self.forbid(variable, monkeypatch)
        with pytest.raises(DataUnavailable) as caught:
            load_minilm(small.model)
        lines = str(caught.value).splitlines()
        assert lines[0].startswith("small/minilm (")
        assert lines[0].endswith(f"is not in the cache {hub_cache()} and could not be fetched. Tried:")
        assert lines[1] == f"  nothing: {variable} forbids the network"
        assert lines[2].startswith("Connect to the network and call again, which fetches only what is missing; or copy")
        assert "models--small--minilm" in lines[2]
        assert "HF_ENDPOINT" in lines[2]
        assert len(lines) == 3
        assert caught.value.__cause__ is None
        assert server.asked == []

    def forbid(self, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The library reads its own variable when it is imported; a new process does below."""
        monkeypatch.setenv(variable, "1")
        if variable == "HF_HUB_OFFLINE":
            monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    def test_no_network_is_said_soon(self, served: Hub, small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without the library's own attempts, which take half a minute with their pauses."""
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"waits {seconds} s"))
        with pytest.raises(
            DataUnavailable, match=r"http://127.0.0.1:9/small/minilm/resolve/.*: .*[Rr]efused"
        ) as caught:
            load_minilm(small.model)
        assert caught.value.__suppress_context__
        assert len(str(caught.value).splitlines()) == 3

    def test_what_follows_draws_the_same_numbers_with_and_without_the_weights(self, served: Hub, small: Small) -> None:
        before = torch.get_rng_state()
        load_minilm(small.model)
        assert torch.equal(torch.get_rng_state(), before)


class TestServers:
    FAULTS: Mapping[str, tuple[Reply, str]] = {
        "404": (answer(b"no", status=404, headers={"X-Error-Code": "EntryNotFound"}), "404"),
        "403": (answer(b"go away", status=403), "403"),
        "500": (answer(b"oops", status=500), "500"),
        "a login page": (answer(b"<html>please log in</html>"), "refused|X-Repo-Commit|size|bytes"),
        "hangs up": (hang_up, "reset|closed|disconnected"),
        "redirects for ever": (redirect("/again"), "."),
    }

    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_fault_gives_a_reason_and_leaves_nothing(
        self, served: Hub, small: Small, cache: Path, fault: str
    ) -> None:
        reply, reason = self.FAULTS[fault]
        served.faults = {("HEAD", WEIGHTS): [reply], ("GET", WEIGHTS): [reply]}
        with pytest.raises(DataUnavailable, match=rf"Tried:\n  http://127.*/{WEIGHTS}: .*(?:{reason})"):
            load_minilm(small.model)
        assert blobs(cache) == set()

    def cut(self, body: bytes) -> Reply:
        return answer(body[: len(body) // 2], promise=len(body))

    def test_a_cut_download_is_continued(self, served: Hub, small: Small) -> None:
        served.faults[("GET", WEIGHTS)] = [self.cut(small.files[WEIGHTS]), None]
        assert equal_to_theirs(load_minilm(small.model), small)

    def test_a_download_that_is_always_cut_leaves_nothing(self, served: Hub, small: Small, cache: Path) -> None:
        served.faults[("GET", WEIGHTS)] = [self.cut(small.files[WEIGHTS])]
        with pytest.raises(DataUnavailable, match=rf"/{WEIGHTS}: .*(peer closed|[Ii]ncomplete|Consistency)"):
            load_minilm(small.model)
        assert blobs(cache) == set()

    def wrong(self, body: bytes) -> Reply:
        return answer(body[:-1] + bytes([body[-1] ^ 1]))

    def test_wrong_bytes_are_fetched_once_more(self, served: Hub, small: Small, cache: Path) -> None:
        served.faults[("GET", WEIGHTS)] = [self.wrong(small.files[WEIGHTS]), None]
        assert equal_to_theirs(load_minilm(small.model), small)
        assert blobs(cache) == {*small.files.values()}

    def test_wrong_bytes_again_are_refused_and_not_kept(self, served: Hub, small: Small, cache: Path) -> None:
        served.faults[("GET", WEIGHTS)] = [self.wrong(small.files[WEIGHTS])]
        with pytest.raises(DataUnavailable, match=rf"/{WEIGHTS}: refused, sha256 is [0-9a-f]{{64}}; expected "):
            load_minilm(small.model)
        assert blobs(cache) == set()
        assert list(hub_cache().glob("*/snapshots/*/*")) == []
        del served.faults["GET", WEIGHTS]
        assert equal_to_theirs(load_minilm(small.model), small)

    @pytest.mark.parametrize(
        ("header", "message"),
        [
            ({"X_Linked_Etag": '"' + 64 * "0" + '"'}, "refused, its sha256 is 0{64}; expected "),
            ({"X_Linked_Size": "12345"}, "refused, it has 12,345 bytes; expected "),
        ],
    )
    def test_another_file_is_refused_before_it_is_fetched(
        self, served: Hub, server: Server, small: Small, header: dict[str, str], message: str
    ) -> None:
        served.faults[("HEAD", WEIGHTS)] = [served.file(f"small/minilm/{WEIGHTS}", **header)]
        with pytest.raises(DataUnavailable, match=message):
            load_minilm(small.model)
        assert not any(line.startswith("GET /small") for line in server.asked)

    def test_large_files_may_come_from_another_place(self, served: Hub, server: Server, small: Small) -> None:
        """As they do: the hub names their size and hash, and a store without these names has the bytes."""
        store = server.url("store").replace("127.0.0.1", "localhost")
        named = served.file(f"small/minilm/{WEIGHTS}", Location=store)
        served.faults[("HEAD", WEIGHTS)] = [self.moved(named)]
        served.faults[("GET", WEIGHTS)] = [self.moved(named)]
        answers = answer(small.files[WEIGHTS])
        server.replies = [lambda handler: (answers if handler.path == "/store" else served)(handler)]
        assert equal_to_theirs(load_minilm(small.model), small)
        assert "GET /store" in server.asked

    def moved(self, reply: Reply) -> Reply:
        """The same headers with status 302."""

        def changed(handler: object) -> None:
            send = handler.send_response
            handler.send_response = lambda status: send(302)
            reply(handler)

        return changed


class TestDisk:
    def test_a_damaged_file_is_fetched_again(self, served: Hub, small: Small, cache: Path) -> None:
        load_minilm(small.model)
        self.damage(cache)
        assert equal_to_theirs(load_minilm(small.model), small)
        assert blobs(cache) == {*small.files.values()}

    def test_a_damaged_file_is_not_read_offline(
        self, served: Hub, small: Small, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        load_minilm(small.model)
        self.damage(cache)
        monkeypatch.setenv("TFBOOK_OFFLINE", "1")
        with pytest.raises(DataUnavailable, match="TFBOOK_OFFLINE forbids the network"):
            load_minilm(small.model)

    def damage(self, cache: Path) -> None:
        [path] = cache.glob(f"huggingface/*/snapshots/*/{WEIGHTS}")
        body = path.read_bytes()
        path.resolve().write_bytes(body[:-1] + bytes([body[-1] ^ 1]))

    @pytest.fixture
    def unprivileged(self) -> Iterator[Callable[[Path], None]]:
        """Makes a folder one that this process may read and not write, even where the tests run as root."""
        if os.name != "posix":
            pytest.skip("folders on Windows have no such permissions")
        user, locked = os.geteuid(), []

        def lock(folder: Path) -> None:
            locked.extend(path for path in (folder, *folder.rglob("*")) if path.is_dir())
            for path in locked:
                path.chmod(0o555)
            if user == 0:
                os.seteuid(65534)

        yield lock
        os.seteuid(user)
        for path in locked:
            path.chmod(0o755)

    @pytest.fixture
    def folder(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """A cache that other users may enter, as those of pytest's own folders may not."""
        with tempfile.TemporaryDirectory() as name:
            Path(name).chmod(0o755)
            monkeypatch.setenv("TFBOOK_DATA", name)
            yield Path(name)

    def test_a_cache_that_cannot_be_written_says_what_to_set(
        self, served: Hub, small: Small, folder: Path, unprivileged: Callable[[Path], None]
    ) -> None:
        unprivileged(folder)
        message = rf"^the cache folder {folder / 'huggingface'} cannot be written .*: set TFBOOK_DATA to a folder that"
        with pytest.raises(DataUnavailable, match=message):
            load_minilm(small.model)

    def test_a_read_only_cache_serves_what_it_holds(
        self, served: Hub, server: Server, small: Small, folder: Path, unprivileged: Callable[[Path], None]
    ) -> None:
        load_minilm(small.model)
        server.asked.clear()
        unprivileged(folder)
        assert equal_to_theirs(load_minilm(small.model), small)
        assert server.asked == []

    def test_a_cache_that_is_no_folder_says_what_to_set(
        self, served: Hub, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "plain").write_text("a file")
        monkeypatch.setenv("TFBOOK_DATA", str(tmp_path / "plain"))
        with pytest.raises(DataUnavailable, match=r"cannot be written .* set TFBOOK_DATA to a folder that can"):
            load_minilm(small.model)

    def test_a_full_disk_is_reported_as_such(self, served: Hub, small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(file: object, data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("tfbook.data.transfer._Limited.write", full)
        with pytest.raises(DataUnavailable, match=r"^no space left on the disk for .*: free some, or set TFBOOK_DATA"):
            load_minilm(small.model)


@pytest.mark.slow
def test_the_variables_of_the_library_are_heeded_by_a_new_process(
    served: Hub, server: Server, small: Small, tmp_path: Path
) -> None:
    """HF_ENDPOINT, HF_HOME and HF_HUB_OFFLINE, and no import of what is heavy before weights are asked for."""
    code = (
        "import sys, tfbook.interop.hub as hub\n"
        "heavy = {'huggingface_hub', 'tokenizers', 'safetensors', 'transformers', 'requests', 'pooch'}\n"
        "assert not heavy & {name.partition('.')[0] for name in sys.modules}\n"
        f"from tfbook.interop.hub import HubFile, HubModel\nmodel = hub.{small.model!r}\n"
        "print(hub.load_minilm(model).encode(['a dog']).shape)\n"
    )
    free = {name: value for name, value in os.environ.items() if not name.startswith(("TFBOOK_", "HF_"))}
    home = {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": os.environ["HF_ENDPOINT"]}

    def run(**variables: str) -> str:
        command = [sys.executable, "-W", "error::DeprecationWarning:tfbook", "-c", code]
        done = subprocess.run(command, cwd=ROOT, env=free | home | variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run().splitlines()[-1] == "torch.Size([1, 12])"
    assert (tmp_path / "home" / "hub" / "models--small--minilm").is_dir()
    assert run(HF_HUB_OFFLINE="1") == "torch.Size([1, 12])\n"


# ---- sentences ---------------------------------------------------------------------------------------------------


@pytest.fixture
def encoder(served: Hub, small: Small) -> SentenceEncoder:
    return load_minilm(small.model)


class TestEncoder:
    @pytest.mark.parametrize("batch", [1, 2, 32])
    def test_batches_keep_the_order_and_padding_changes_nothing(
        self, encoder: SentenceEncoder, small: Small, batch: int
    ) -> None:
        torch.testing.assert_close(encoder.encode(TEXTS, batch=batch), small.vectors(TEXTS), rtol=1e-5, atol=1e-6)

    def test_vectors_have_length_1_and_no_gradient(self, encoder: SentenceEncoder) -> None:
        vectors = encoder.encode(TEXTS)
        torch.testing.assert_close(vectors.norm(dim=-1), torch.ones(len(TEXTS)))
        assert not vectors.requires_grad
        assert encoder.encode([]).shape == (0, 12)

    def test_dropout_is_off_and_the_mode_stays(self, encoder: SentenceEncoder) -> None:
        assert not encoder.training
        before = encoder.encode(TEXTS)
        encoder.train()
        assert torch.equal(encoder.encode(TEXTS), before)
        assert encoder.training
        assert encoder.bert.training

    def test_the_mean_leaves_out_the_padding(self) -> None:
        x = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [100.0, 100.0]], [[5.0, 6.0], [7.0, 8.0], [9.0, 10.0]]])
        expected = torch.tensor([[2.0, 3.0], [7.0, 8.0]])
        torch.testing.assert_close(mean_pooled(x, torch.tensor([2, 3])), expected)
        x[0, 2] = torch.nan  # what stands in padding does not matter
        torch.testing.assert_close(mean_pooled(x, torch.tensor([2, 3])), expected)

    def test_the_mean_of_no_token_is_0(self) -> None:
        """And not 0/0, of which every later number would be NaN."""
        x = torch.ones(2, 3, 4, requires_grad=True)
        pooled = mean_pooled(x, torch.tensor([0, 2]))
        assert pooled.tolist() == [[0.0] * 4, [1.0] * 4]
        F.normalize(pooled, dim=-1).sum().backward()
        assert x.grad is not None
        assert x.grad.isfinite().all()

    def test_a_long_text_is_cut_and_this_is_said(self, encoder: SentenceEncoder) -> None:
        """[CLS] and [SEP] count; what comes later changes nothing."""
        assert encoder.max_length == POSITIONS
        fits, long = "dog " * (POSITIONS - 2), "dog " * (POSITIONS - 2) + "cat"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            kept = encoder.encode([fits])
        with pytest.warns(UserWarning, match="1 of 2 texts, cut: more than 24 tokens, the rest of which is not"):
            cut = encoder.encode(["a cat", long])
        torch.testing.assert_close(cut[1:], kept)

    def test_one_text_is_not_a_list(self, encoder: SentenceEncoder, unchecked: None) -> None:
        with pytest.raises(TypeError, match=r"texts is a str; expected a list of str, \[text\] for one text"):
            encoder.encode("a dog")
        with pytest.raises(TypeError, match="texts is not str throughout; expected a list of str"):
            encoder.encode(["a dog", 3])
        with pytest.raises(ValueError, match="batch is 0; expected 1 or more"):
            encoder.encode(["a dog"], batch=0)

    def test_a_length_that_bert_has_no_positions_for_is_refused(self, encoder: SentenceEncoder) -> None:
        with pytest.raises(ValueError, match="max_length is 25; expected 3 to 24, the positions that bert has"):
            SentenceEncoder(encoder.bert, encoder.tokenizer, max_length=25)

    def test_the_nearest_text_is_the_query_itself(self, encoder: SentenceEncoder) -> None:
        index = SemanticIndex(encoder, TEXTS)
        for place, text in enumerate(TEXTS):
            found = index.nearest(text)
            assert (found[0].place, found[0].text) == (place, text)
            assert found[0].score == pytest.approx(1, abs=1e-5)
            assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
        assert len(index.nearest("a cat", 99)) == len(TEXTS)
        with pytest.raises(ValueError, match="count is 0; expected 1 or more"):
            index.nearest("a cat", 0)
        with pytest.raises(ValueError, match="texts is empty; expected at least one to search"):
            SemanticIndex(encoder, [])


# ---- the other models --------------------------------------------------------------------------------------------


class TestOtherModels:
    def test_gpt2(self, served: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With the masks that its published file holds beside the weights, and without the names' first part."""
        theirs = drawn(
            transformers.GPT2LMHeadModel(
                transformers.GPT2Config(
                    vocab_size=300, n_embd=12, n_head=3, n_layer=2, n_positions=16, bos_token_id=0, eos_token_id=0
                )
            )
        )
        state = {name.removeprefix("transformer."): weight for name, weight in theirs.transformer.state_dict().items()}
        state |= {f"h.{block}.attn.bias": torch.ones(1, 1, 16, 16).tril() for block in range(2)}
        learned = Tokenizer.learn(["the cat sat on the mat " * 20], 260, specials=["<|endoftext|>"])
        learned.save(tmp_path / "tokenizer.json")
        files = {WEIGHTS: save(state), "tokenizer.json": (tmp_path / "tokenizer.json").read_bytes()}
        served.files |= {f"small/gpt2/{name}": body for name, body in files.items()}
        small = published(hub.GPT2_MODELS["gpt2"], "small/gpt2", files, heads=3)
        monkeypatch.setitem(hub.GPT2_MODELS, "gpt2", small)
        gpt, tokenizer = load_gpt2("gpt2")
        assert not gpt.training
        ids = torch.tensor([tokenizer.encode("the cat sat")])
        with torch.no_grad():
            torch.testing.assert_close(gpt(ids), theirs(ids).logits, rtol=1e-4, atol=1e-5)
        assert tokenizer.specials == {"<|endoftext|>": 0}

    def test_gpt2_of_another_name_is_refused(self) -> None:
        with pytest.raises(ValueError, match="name is 'gpt3'; expected one of gpt2"):
            load_gpt2("gpt3")

    def test_vit(self, served: Hub, tmp_path: Path) -> None:
        sizes = {"image_size": 8, "patch_size": 4, "num_hidden_layers": 2, "hidden_size": 12, "intermediate_size": 20}
        theirs = drawn(
            transformers.ViTForImageClassification(transformers.ViTConfig(**sizes, num_attention_heads=3, num_labels=5))
        )
        files = {WEIGHTS: weights_of(theirs, tmp_path)}
        served.files[f"small/vit/{WEIGHTS}"] = files[WEIGHTS]
        vit = load_vit_b16(published(hub.VIT_B16, "small/vit", files, heads=3))
        assert not vit.training
        images = torch.randn(2, 3, 8, 8)
        with torch.no_grad():
            torch.testing.assert_close(vit(images), theirs(images).logits, rtol=1e-4, atol=1e-5)

    def test_a_file_without_every_weight_is_refused(self, served: Hub, small: Small) -> None:
        state = {name: weight for name, weight in small.theirs.state_dict().items() if "layer.1.output" not in name}
        files = small.files | {WEIGHTS: save(state)}
        served.files |= {f"small/part/{name}": body for name, body in files.items()}
        with pytest.raises(ValueError, match=r"the file lacks stack.blocks.1.*; expected every weight of a Bert"):
            load_minilm(published(MINILM, "small/part", files, heads=3))


# ---- the published files -----------------------------------------------------------------------------------------


@pytest.fixture
def real_minilm(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the files that the hub has, served as the hub serves them."""
    folder = Path(os.environ.get("TFBOOK_MINILM", ""))
    if not (folder / WEIGHTS).is_file():
        pytest.skip("needs MiniLM's published files: set TFBOOK_MINILM to a folder that holds them")
    server.replies = [Hub({f"{MINILM.repository}/{file.name}": folder / file.name for file in MINILM.files})]
    monkeypatch.setenv("HF_ENDPOINT", server.url("").rstrip("/"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    return folder


PAIRS = [  # a text, a paraphrase that shares no noun or verb with it, and a text about something else
    ("The weights of each query sum to one.", "Every row adds up to 1.", "The dog barked at the mailman."),
    ("How do I bake bread?", "a recipe for a loaf", "How do I break bad habits?"),
    ("The river flooded its bank.", "Water rose over the shore.", "The committee approved the budget."),
    ("Someone plays a song on the guitar.", "a musician with a stringed instrument", "A cat sleeps on the mat."),
]


@torch.no_grad()
def test_minilm_is_theirs_and_knows_a_paraphrase(real_minilm: Path) -> None:
    encoder = load_minilm()
    theirs = transformers.BertModel.from_pretrained(real_minilm, attn_implementation="sdpa").eval()
    made = transformers.AutoTokenizer.from_pretrained(real_minilm)
    texts = [text for row in PAIRS for text in row] + ["", "naïve café – Ünïcödé 中文字 snake_case don't", "x" * 150]
    read = made(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
    lengths = read["attention_mask"].sum(dim=1)
    assert [encoding.ids for encoding in encoder.tokenizer.encode_batch(texts)] == [
        row[:length].tolist() for row, length in zip(read["input_ids"], lengths, strict=True)
    ]
    there = read["attention_mask"].bool()
    other = theirs(**read).last_hidden_state
    torch.testing.assert_close(encoder.bert(read["input_ids"], lengths)[there], other[there], rtol=0, atol=1e-6)
    means = torch.stack([row[keep].mean(dim=0) for row, keep in zip(other, there, strict=True)])
    torch.testing.assert_close(encoder.encode(texts), F.normalize(means, dim=-1), rtol=0, atol=1e-6)
    for text, paraphrase, stranger in PAIRS:
        index = SemanticIndex(encoder, [stranger, paraphrase])
        assert index.nearest(text)[0].text == paraphrase
