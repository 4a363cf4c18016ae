"""Servers that mean harm or have gone wrong: nothing outside the cache is touched, size and time are bounded."""

import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from random import Random

import pytest
from drawn_faults import ESCAPES, PATHS, Ranges, drawn_replies, drip, status
from hub_server import Hub
from loopback import Reply, Server, answer, endless

from tfbook.data.download import DataUnavailable, File, RetryPolicy, cache_folder, fetch
from tfbook.data.transfer import printable
from tfbook.interop import hub_files
from tfbook.interop.hub_files import HubFile, HubModel, fetch_from_hub, hub_cache

BODY = bytes(range(256)) * 12
SHA256 = hashlib.sha256(BODY).hexdigest()
NAME = "model.safetensors"
MODEL = HubModel(
    repository="small/model",
    revision="0123456789abcdef0123456789abcdef01234567",
    license="MIT",
    heads=1,
    files=(HubFile(name=NAME, size=len(BODY), sha256=SHA256),),
)
FILE = File(path="kind/file.bin", urls=("http://127.0.0.1:9/",), sha256=SHA256, most=len(BODY))
HASTE = RetryPolicy(connect=2.0, read=2.0, download=3.0, attempts=2, backoff=0.0)
MARGIN = 2.5  # seconds that a busy machine may take longer


@pytest.fixture
def served(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A hub that has the file, an empty cache, the network allowed, no pause between attempts."""
    offered = Hub({f"{MODEL.repository}/{NAME}": BODY})
    server.replies = [offered]
    monkeypatch.setenv("HF_ENDPOINT", server.url("").rstrip("/"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return offered


@pytest.fixture
def victims(cache: Path, tmp_path: Path) -> Iterator[dict[Path, bytes]]:
    """Files of the user all around the repository's place in the cache; the same afterwards, and no others."""
    places = [tmp_path, *(cache / below for below in ("", "huggingface", "huggingface/models--other/blobs", "kind"))]
    files = {folder / "victim.txt": f"of the user, in {folder}".encode() for folder in places}
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    yield files
    own = (cache / "huggingface" / "models--small--model", cache / "kind" / "file.bin")
    found = {path for path in tmp_path.rglob("*") if path.is_file() or path.is_symlink()}
    outside = {path for path in found if not any(path.is_relative_to(each) for each in own)}
    assert outside - {cache / "kind" / "file.bin.verified"} == files.keys()
    assert all(path.read_bytes() == content and not path.is_symlink() for path, content in files.items())


def outcome() -> str:
    """`fetch_from_hub` gives the right bytes, or says why not; then nothing of the file is in the cache."""
    try:
        path = fetch_from_hub(MODEL)[NAME]
    except DataUnavailable as error:
        left = [each for each in (hub_cache() / "models--small--model").rglob("*") if each.is_file()]
        assert left == []
        return str(error)
    assert path.read_bytes() == BODY
    return "right"


# ---- nothing outside ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["ETag", "X_Linked_Etag", "X_Repo_Commit", "Content_Disposition"])
@pytest.mark.parametrize("path", PATHS)
def test_no_header_says_where_a_file_is_put(
    served: Hub, victims: dict[Path, bytes], cache: Path, header: str, path: str
) -> None:
    """Nor what is removed when the file is damaged later."""
    value = f'attachment; filename="{path}"' if header == "Content_Disposition" else f'"{path}"'
    reply = served.file(f"{MODEL.repository}/{NAME}", **{header: path if header == "X_Repo_Commit" else value})
    served.faults = {(method, NAME): [reply] for method in ("HEAD", "GET")}
    if outcome() == "right":
        fetch_from_hub(MODEL)[NAME].resolve().write_bytes(b"damaged")
        assert outcome() == "right"
    else:
        assert header == "X_Linked_Etag"
        assert path == "f" * 64
    blobs = (cache / "huggingface" / "models--small--model" / "blobs").glob("*")
    assert {each.name for each in blobs} <= {SHA256}


@pytest.mark.skipif(os.name != "posix", reason="Windows lets only some users make links")
@pytest.mark.parametrize(
    "target", ["victim.txt", "huggingface/victim.txt", "huggingface/models--other/blobs/victim.txt"]
)
@pytest.mark.parametrize("blobs", [True, False])
def test_a_link_that_leads_out_of_the_cache_is_removed_alone(
    served: Hub, victims: dict[Path, bytes], cache: Path, target: str, blobs: bool
) -> None:
    """As one that an earlier download left: in the place of the name, or of the bytes."""
    path, blob = hub_files._places(MODEL, MODEL.files[0])
    link = blob if blobs else path
    link.parent.mkdir(parents=True)
    link.symlink_to(cache / target)
    assert outcome() == "right"
    assert (cache / target).read_bytes().startswith(b"of the user")


@pytest.mark.skipif(os.name != "posix", reason="Windows lets only some users make links")
def test_a_folder_that_leads_out_of_the_cache_is_not_emptied(
    served: Hub, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = hub_files._places(MODEL, MODEL.files[0])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / NAME).write_bytes(b"of the user")
    path.parent.parent.mkdir(parents=True)
    path.parent.symlink_to(elsewhere)
    monkeypatch.setenv("TFBOOK_OFFLINE", "1")
    assert "TFBOOK_OFFLINE" in outcome()
    assert (elsewhere / NAME).read_bytes() == b"of the user"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HubFile(name="x", size=1, sha256="../../x"), "sha256 is '../../x'; expected 64 hexadecimal digits"),
        (lambda: HubFile(name="../x", size=1, sha256=SHA256), "name is '../x'; expected a path below the repository"),
        (lambda: HubFile(name="/x", size=1, sha256=SHA256), "name is '/x'; expected a path below the repository"),
        (lambda: replace(MODEL, revision="main"), "revision is 'main'; expected 40 hexadecimal digits"),
        (lambda: replace(MODEL, repository="../x"), "repository is '../x'; expected OWNER/NAME"),
    ],
)
def test_no_record_says_a_place_outside_either(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_an_unknown_user_s_home_is_no_cache(
    served: Hub, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a folder of that name come into being; as a mirror it is one that does not exist."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFBOOK_MIRROR", "~nobody_x/mirror")
    with pytest.raises(DataUnavailable, match=r"  ~nobody_x/mirror/kind/file\.bin: .*No such file"):
        fetch(FILE, retry=HASTE)
    monkeypatch.setenv("TFBOOK_DATA", "~nobody_x/cache")
    for load in (lambda: fetch(FILE, retry=HASTE), lambda: fetch_from_hub(MODEL)):
        with pytest.raises(
            DataUnavailable, match=r"^TFBOOK_DATA is '~nobody_x/cache'; expected a path, and there is no"
        ):
            load()
    assert not (tmp_path / "~nobody_x").exists()


# ---- size and time -----------------------------------------------------------------------------------------------


def largest(folder: Path) -> int:
    return max((path.stat().st_size for path in folder.rglob("*") if path.is_file()), default=0)


@pytest.mark.parametrize("begun", [True, False])
def test_an_endless_answer_ends_by_the_size_that_is_stated(
    served: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """From the first byte on and when a cut download is continued."""

    def part(handler: BaseHTTPRequestHandler) -> None:
        headers = {"Content-Range": f"bytes 1000-{len(BODY) - 1}/{len(BODY)}"}
        answer(bytes(10**7), status=206, promise="none", headers=headers)(handler)

    served.faults["GET", NAME] = [Ranges(BODY, 1000), part] if begun else [endless]
    written: list[int] = []
    unlink = Path.unlink
    monkeypatch.setattr(
        Path, "unlink", lambda path, **options: (written.append(largest(cache)), unlink(path, **options))
    )
    started = time.monotonic()
    assert f"it holds more than {len(BODY):,} bytes" in outcome()
    assert time.monotonic() - started < 10
    assert max(written) <= len(BODY)


DRIPS: dict[str, list[Reply]] = {
    "of the body": [drip(BODY)],
    "of the headers": [drip(BODY, headers=True)],
    "after a cut": [Ranges(BODY, 1000), drip(BODY)],
}


@pytest.mark.parametrize("kind", DRIPS)
def test_a_dripping_server_is_given_the_time_that_is_stated(
    served: Hub, server: Server, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """All attempts together: no single wait is long."""
    monkeypatch.setattr(hub_files, "_DOWNLOAD", 1.0)
    slowly = [lambda handler, reply=reply: (handler.server.closing.wait(0.05), reply(handler)) for reply in DRIPS[kind]]
    served.faults["GET", NAME] = slowly
    started = time.monotonic()
    assert "not finished after 1 s" in outcome()
    assert time.monotonic() - started < 1 + MARGIN
    server.replies = slowly
    file = replace(FILE, urls=(server.url(),))
    started = time.monotonic()
    with pytest.raises(DataUnavailable, match="not finished after 1 s"):
        fetch(file, retry=replace(HASTE, download=1.0))
    assert time.monotonic() - started < 1 + MARGIN
    assert [path for path in cache_folder().rglob("*") if path.is_file()] == []


def test_a_dripping_head_is_given_the_time_that_is_stated(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_files, "_PATIENCE", 1.0)
    served.faults["HEAD", NAME] = [drip(BODY, headers=True)]
    started = time.monotonic()
    assert "no answer within 1 s" in outcome()
    assert time.monotonic() - started < 1 + MARGIN


def test_a_large_file_is_given_longer(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 50 kB a second 549 MB take three hours."""
    given: list[float] = []
    monkeypatch.setattr(hub_files, "fill", lambda *parts, resume: given.append(parts[4].download))
    hub_files._downloaded(MODEL, replace(MODEL.files[0], size=548_105_171))
    hub_files._downloaded(MODEL, MODEL.files[0])
    assert given == [548_105_171 / 50_000, 1800.0]


LARGE = BODY * 40
LARGER = HubFile(name=NAME, size=len(LARGE), sha256=hashlib.sha256(LARGE).hexdigest())


@pytest.mark.parametrize("most", [10_000, 50_000, len(LARGE) - 1])
def test_a_cut_download_is_continued(served: Hub, server: Server, most: int) -> None:
    """However often it is cut, as long as each attempt brings something; what comes twice is less than 8 kB a cut."""
    ranges, once_more = Ranges(LARGE, most), (1 << 13) * (len(LARGE) // most + 1)
    served.files[f"{MODEL.repository}/{NAME}"] = LARGE
    served.faults["GET", NAME] = [ranges]
    assert fetch_from_hub(replace(MODEL, files=(LARGER,)))[NAME].read_bytes() == LARGE
    assert ranges.sent <= len(LARGE) + once_more
    ranges.sent, server.replies = 0, [ranges]
    file = replace(FILE, urls=(server.url(),), sha256=LARGER.sha256, most=LARGER.size)
    assert fetch(file, retry=replace(HASTE, download=60.0)).read_bytes() == LARGE
    assert ranges.sent <= len(LARGE) + once_more


def test_parts_that_drip_are_given_the_time_that_is_stated(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each brings something, and each is one more attempt."""
    monkeypatch.setattr(hub_files, "_DOWNLOAD", 1.0)
    ranges = Ranges(LARGE, 8200)
    served.files[f"{MODEL.repository}/{NAME}"] = LARGE
    served.faults["GET", NAME] = [lambda handler: (handler.server.closing.wait(0.4), ranges(handler))]
    started = time.monotonic()
    with pytest.raises(DataUnavailable, match="not finished after"):
        fetch_from_hub(replace(MODEL, files=(LARGER,)))
    assert time.monotonic() - started < LARGER.size / hub_files._SLOWEST + MARGIN


def test_a_file_without_a_hash_begins_anew(server: Server, cache: Path) -> None:
    """Parts of two versions might pass for one file."""
    asked = []

    def reply(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.headers.get("Range"))
        answer(BODY if len(asked) > 1 else BODY[:1000], promise=len(BODY))(handler)

    server.replies = [reply]
    file = replace(FILE, urls=(server.url(),), sha256=None, check=lambda path: None)
    assert fetch(file, retry=HASTE).read_bytes() == BODY
    assert asked == [None, None]


# ---- messages ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ESCAPES)
def test_a_server_writes_nothing_raw_into_a_message(
    served: Hub, server: Server, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    served.faults = {(method, NAME): [status(f"404 {text}")] for method in ("HEAD", "GET")}
    messages = [outcome()]
    del served.faults["HEAD", NAME]
    messages.append(outcome())
    server.replies = [status(f"404 {text}")]
    with pytest.raises(DataUnavailable) as caught:
        fetch(replace(FILE, urls=(server.url(),)), retry=HASTE)
    for message in (*messages, str(caught.value), *capsys.readouterr()):
        assert all(line.isprintable() and len(line) < 600 for line in message.splitlines())
        assert "\x1b" not in message


def test_what_is_printable_stays() -> None:
    assert printable("Größe 3 · 日本") == "Größe 3 · 日本"
    assert printable("a\nb\x1b[0m\u202e\ud800") == r"a\nb\x1b[0m\u202e\ud800"
    assert printable("x" * 301) == "x" * 300 + "…"


# ---- faults at random --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_whatever_servers_do_the_cache_is_right_or_empty(
    served: Hub, server: Server, victims: dict[Path, bytes], cache: Path, seed: int
) -> None:
    """Ten draws for the hub and ten for other files with each seed, of one to three answers in a row."""
    dice = Random(seed)
    file = replace(FILE, urls=(server.url(),))
    for _ in range(10):
        served.faults = {("GET", NAME): [*drawn_replies(dice, BODY), *([None] * dice.randrange(2))]}
        if dice.random() < 0.5:
            served.faults["HEAD", NAME] = [*drawn_replies(dice, BODY)]
        started = time.monotonic()
        server.replies = [served]
        outcome()
        for path in hub_files._places(MODEL, MODEL.files[0]):
            path.unlink(missing_ok=True)
        server.asked.clear()
        said = ""
        server.replies = [*drawn_replies(dice, BODY)]
        try:
            assert fetch(file, retry=HASTE).read_bytes() == BODY
        except DataUnavailable as error:
            said = str(error)
        assert all(line.isprintable() for line in said.splitlines())
        kept = {path.name for path in (cache / "kind").iterdir()} - {"victim.txt", "file.bin", "file.bin.verified"}
        assert kept == set()
        (cache / "kind" / "file.bin").unlink(missing_ok=True)
        assert time.monotonic() - started < 20
        server.asked.clear()
    server.replies, served.faults = [served], {}
    assert outcome() == "right"
