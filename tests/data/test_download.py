"""The right bytes or a clear error and nothing else in the cache, whatever a server, a disk or another process does."""

import errno
import gzip
import hashlib
import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import filelock
import pytest
import requests
from hypothesis import HealthCheck, given, settings, strategies as st
from loopback import Reply, Server, answer, babble, endless, hang_up, redirect, silence, slow, stall, trickle

from tfbook.data import download
from tfbook.data.download import DataUnavailable, File, RetryPolicy, cache_folder, can_fetch, fetch

ROOT = Path(__file__).parents[2]
BODY = bytes(range(256)) * 1000
WRONG = b"X" + BODY[1:]
SHA256 = hashlib.sha256(BODY).hexdigest()
HASTE = RetryPolicy(connect=2.0, read=1.0, download=60.0, attempts=2, backoff=0.0)  # a busy machine is slow to answer

GOOD = answer(BODY)
# What a server may do, and words of the reason that the reader is given.
FAULTS: dict[str, tuple[Reply, str]] = {
    "cut": (answer(BODY[:1000], promise=len(BODY)), "IncompleteRead"),
    "cut without a length": (answer(BODY[:1000], promise="none"), "refused, sha256 is"),
    "empty": (answer(b""), "refused, sha256 is"),
    "corrupt": (answer(WRONG), "refused, sha256 is"),
    "too long": (answer(BODY + b"X"), "refused, sha256 is"),
    "a login page": (answer(b"<html>please log in</html>"), "refused, sha256 is"),
    "stalls": (stall(BODY, 1000), "timed out"),
    "silent": (silence, "timed out"),
    "trickles": (trickle(BODY), "not finished after 1 s"),
    "404": (answer(b"no such file", status=404), "404 Client Error"),
    "403": (answer(b"go away", status=403), "403 Client Error"),
    "429": (answer(b"too many", status=429), "429 Client Error"),
    "500": (answer(b"oops", status=500), "500 Server Error"),
    "503 with the bytes": (answer(BODY, status=503), "503 Server Error"),
    "hangs up": (hang_up, "reset|closed"),
    "babbles": (babble, "."),
    "a length that is no number": (answer(BODY, promise="many"), "many"),
    "redirects for ever": (redirect("/again"), "[Rr]edirect"),
    "redirects nowhere": (redirect("http://127.0.0.1:9/"), "[Rr]efused|timed out"),
    "encoded badly": (answer(BODY, headers={"Content-Encoding": "gzip"}), "."),
}
ALMOST_NONE = {  # for faults that take all attempts
    "stalls": replace(HASTE, attempts=1),
    "silent": replace(HASTE, attempts=1),
    "trickles": replace(HASTE, download=1.0),
}
PASSING = ("cut", "cut without a length", "corrupt", "stalls", "silent", "429", "500", "hangs up")


def a_file(*urls: str, **changes: Any) -> File:
    return File(**{"path": "kind/file.bin", "urls": urls, "sha256": SHA256} | changes)


def contents(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(autouse=True)
def _own_cache(cache: Path) -> None:
    """Every test has an empty cache."""


class TestServers:
    def test_a_download_ends_in_the_cache_and_is_not_repeated(self, server: Server, cache: Path) -> None:
        server.replies = [GOOD]
        for _ in range(2):
            path = fetch(a_file(server.url()), retry=HASTE)
            assert path == cache / "kind" / "file.bin"
            assert path.read_bytes() == BODY
        assert server.asked == ["GET /file.bin"]
        assert contents(cache) == {"file.bin", "file.bin.verified"}

    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_fault_gives_a_reason_and_leaves_nothing(self, server: Server, cache: Path, fault: str) -> None:
        reply, reason = FAULTS[fault]
        server.replies = [reply]
        with pytest.raises(DataUnavailable, match=rf"(?s)kind/file.bin is not here.*{server.url()}: .*(?:{reason})"):
            fetch(a_file(server.url()), retry=ALMOST_NONE.get(fault, HASTE))
        assert contents(cache) == set()

    @pytest.mark.parametrize("fault", PASSING)
    def test_a_passing_fault_is_tried_again(self, server: Server, fault: str) -> None:
        server.replies = [FAULTS[fault][0], GOOD]
        assert fetch(a_file(server.url()), retry=HASTE).read_bytes() == BODY
        assert len(server.asked) == 2

    @pytest.mark.parametrize("fault", ["404", "403", "trickles"])
    def test_a_lasting_fault_is_not(self, server: Server, fault: str) -> None:
        server.replies = [FAULTS[fault][0]]
        with pytest.raises(DataUnavailable):
            fetch(a_file(server.url()), retry=ALMOST_NONE.get(fault, HASTE))
        assert len(server.asked) == 1

    @pytest.mark.parametrize("fault", FAULTS)
    def test_the_next_address_is_tried(self, server: Server, cache: Path, fault: str) -> None:
        reply = FAULTS[fault][0]
        server.replies = [lambda handler: (GOOD if handler.path == "/second" else reply)(handler)]
        file = a_file(server.url("first"), server.url("second"))
        path = fetch(file, retry=ALMOST_NONE.get(fault, HASTE))
        assert path.read_bytes() == BODY
        assert contents(cache) == {"file.bin", "file.bin.verified"}

    @pytest.mark.parametrize("reply", [endless, answer(bytes(1_000_001)), answer(bytes(1_000_001), promise="none")])
    def test_a_response_ends_by_its_size(self, server: Server, cache: Path, reply: Reply) -> None:
        """One without an end as well, long before the time is up; another source may do better."""
        server.replies = [reply, GOOD]
        message = r"it holds more than 1,000,000 bytes, which is too much for this file"
        with pytest.raises(DataUnavailable, match=message):
            fetch(a_file(server.url(), most=10**6), retry=HASTE)
        assert contents(cache) == set()
        assert len(server.asked) == 1
        server.asked.clear()
        assert fetch(a_file(server.url(), server.url(), most=10**6), retry=HASTE).read_bytes() == BODY

    def test_redirects_are_followed(self, server: Server) -> None:
        server.replies = [redirect("/there"), redirect(server.url("and/there")), GOOD]
        assert fetch(a_file(server.url()), retry=HASTE).read_bytes() == BODY
        assert server.asked == ["GET /file.bin", "GET /there", "GET /and/there"]

    def test_a_compressed_file_stays_compressed(self, server: Server) -> None:
        """Some servers call a .gz file an encoding of its content, and clients that accept it unpack it."""
        body = gzip.compress(BODY)

        def helpful(handler: BaseHTTPRequestHandler) -> None:
            accepted = "gzip" in handler.headers.get("Accept-Encoding", "")
            answer(body, headers={"Content-Encoding": "gzip"} if accepted else {})(handler)

        server.replies = [helpful]
        file = a_file(server.url(), sha256=hashlib.sha256(body).hexdigest())
        assert fetch(file, retry=HASTE).read_bytes() == body

    def test_every_source_is_named_in_the_error(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        server.replies = [FAULTS["404"][0], FAULTS["500"][0], FAULTS["500"][0]]
        monkeypatch.setenv("TFBOOK_MIRROR", "/no/such/folder")
        with pytest.raises(DataUnavailable) as caught:
            fetch(a_file(server.url("a"), server.url("b")), retry=HASTE)
        lines = str(caught.value).splitlines()
        assert lines[0] == "kind/file.bin is not here and could not be fetched. Tried:"
        assert lines[1] == "  /no/such/folder/kind/file.bin: [Errno 2] No such file or directory: " + repr(
            "/no/such/folder/kind/file.bin"
        )
        assert lines[2].startswith(f"  {server.url('a')}: 404")
        assert lines[3].startswith(f"  {server.url('b')}: 500")
        assert lines[4].startswith("Connect to the network, set TFBOOK_MIRROR to a folder or an address")
        assert "fallback=" in lines[4]

    def test_pauses_double(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        server.replies = [FAULTS["500"][0]]
        pauses: list[float] = []
        monkeypatch.setattr(time, "sleep", pauses.append)
        with pytest.raises(DataUnavailable):
            fetch(a_file(server.url()), retry=RetryPolicy(attempts=4, backoff=0.5))
        assert pauses == [0.5, 1.0, 2.0]

    def test_the_reason_is_not_taken_from_an_error_that_was_there_before(self) -> None:
        try:
            raise KeyError("the caller's own trouble")
        except KeyError:
            with pytest.raises(DataUnavailable) as caught:
                fetch(a_file("http://127.0.0.1:9/"), retry=HASTE)
        assert "the caller's own trouble" not in str(caught.value)

    @settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.data())
    def test_whatever_arrives_the_cache_is_right_or_empty(
        self, server: Server, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        body = bytearray(BODY[: data.draw(st.integers(0, len(BODY)), label="sent")])
        for place in data.draw(st.lists(st.integers(0, len(BODY) - 1), max_size=2), label="changed"):
            if place < len(body):
                body[place] ^= data.draw(st.integers(0, 255), label="bits")
        promise = data.draw(st.sampled_from([None, len(BODY), len(BODY) // 2, "none"]), label="promise")
        server.asked, server.replies = [], [answer(bytes(body), promise=promise)]
        cache = tmp_path_factory.mktemp("cache")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TFBOOK_DATA", str(cache))
            try:
                assert fetch(a_file(server.url()), retry=HASTE).read_bytes() == BODY
                assert contents(cache) == {"file.bin", "file.bin.verified"}
            except DataUnavailable:
                assert bytes(body) != BODY or promise == len(BODY) // 2
                assert contents(cache) == set()


class TestCache:
    def damage(self, path: Path, kind: str) -> None:
        """Keeps the modification time where it can, which is the hardest case to notice."""
        before = path.stat()
        path.write_bytes({"cut": BODY[:1000], "empty": b"", "changed": WRONG}[kind])
        if kind != "changed":
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    @pytest.mark.parametrize("kind", ["cut", "empty", "changed"])
    def test_a_damaged_file_is_fetched_again(self, server: Server, kind: str) -> None:
        server.replies = [GOOD]
        self.damage(fetch(a_file(server.url()), retry=HASTE), kind)
        assert fetch(a_file(server.url()), retry=HASTE).read_bytes() == BODY
        assert len(server.asked) == 2

    def test_a_change_is_noticed_when_the_modification_time_is_set_back(self, server: Server) -> None:
        """Same size, same time: only the time that a program cannot set tells."""
        server.replies = [GOOD]
        path = fetch(a_file(server.url()), retry=HASTE)
        before = path.stat()
        path.write_bytes(WRONG)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert fetch(a_file(server.url()), retry=HASTE).read_bytes() == BODY
        assert len(server.asked) == 2

    def test_a_damaged_file_does_not_stay_when_it_cannot_be_fetched(self, server: Server, cache: Path) -> None:
        server.replies = [GOOD, FAULTS["404"][0]]
        self.damage(fetch(a_file(server.url()), retry=HASTE), "cut")
        with pytest.raises(DataUnavailable):
            fetch(a_file(server.url()), retry=HASTE)
        assert "file.bin" not in contents(cache)

    def test_a_file_put_there_by_hand_is_verified_once(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (cache / "kind").mkdir(parents=True)
        (cache / "kind" / "file.bin").write_bytes(BODY)
        file = a_file("http://127.0.0.1:9/")
        verified: list[Path] = []
        verify = File.verify
        monkeypatch.setattr(File, "verify", lambda self, path: (verified.append(path), verify(self, path))[1])
        assert fetch(file) == fetch(file) == cache / "kind" / "file.bin"
        assert len(verified) == 1

    @pytest.mark.skipif(os.name != "posix", reason="files on Windows have no such permissions")
    def test_others_may_read_what_one_user_fetched(self, server: Server) -> None:
        """A class may share a cache: a file gets the permissions that its user gives to every new file."""
        server.replies = [GOOD]
        before = os.umask(0o022)
        try:
            path = fetch(a_file(server.url()), retry=HASTE)
        finally:
            os.umask(before)
        assert path.stat().st_mode & 0o777 == 0o644

    def test_a_damaged_stamp_makes_the_file_be_verified_again(self, server: Server) -> None:
        server.replies = [GOOD]
        path = fetch(a_file(server.url()), retry=HASTE)
        stamp = path.with_name("file.bin.verified")
        good = stamp.read_bytes()
        stamp.write_bytes(b"\xff\xfe")
        assert fetch(a_file(server.url()), retry=HASTE) == path
        assert stamp.read_bytes() == good
        assert len(server.asked) == 1

    def test_another_expectation_makes_the_file_stale(self, server: Server) -> None:
        server.replies = [GOOD, answer(WRONG)]
        fetch(a_file(server.url()), retry=HASTE)
        newer = a_file(server.url(), sha256=hashlib.sha256(WRONG).hexdigest())
        assert fetch(newer, retry=HASTE).read_bytes() == WRONG

    def test_the_platform_has_a_default_folder(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("TFBOOK_DATA")
        assert cache_folder().name == "tfbook"
        monkeypatch.setenv("TFBOOK_DATA", "~/elsewhere")
        assert cache_folder() == Path.home() / "elsewhere"


class TestChecks:
    """Files that roll have no hash."""

    @staticmethod
    def begins_with_zero(path: Path) -> None:
        if path.read_bytes()[0] != 0:
            raise KeyError("no zero")

    def test_a_check_that_raises_anything_refuses_the_file(self, server: Server, cache: Path) -> None:
        file = a_file(server.url(), sha256=None, check=self.begins_with_zero)
        server.replies = [answer(WRONG)]
        with pytest.raises(DataUnavailable, match="refused, KeyError: 'no zero'"):
            fetch(file, retry=HASTE)
        server.replies = [answer(b"")]
        with pytest.raises(DataUnavailable, match="refused, IndexError"):
            fetch(file, retry=HASTE)
        assert contents(cache) == set()
        server.replies = [answer(BODY[:10])]
        assert fetch(file, retry=HASTE).read_bytes() == BODY[:10]

    def test_a_file_without_any_proof_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"kind/file\.bin has urls but neither sha256 nor check"):
            a_file("http://127.0.0.1:9/", sha256=None)

    @pytest.mark.parametrize("name", ["attempts", "connect", "read", "download"])
    def test_no_patience_at_all_is_refused(self, name: str) -> None:
        with pytest.raises(ValueError, match=rf"{name} is 0(\.0)?; expected"):
            RetryPolicy(**{name: 0 if name == "attempts" else 0.0})
        with pytest.raises(ValueError, match=r"backoff is -1\.0; expected 0 or more seconds"):
            RetryPolicy(backoff=-1.0)

    def test_a_file_that_ships_and_is_missing_says_so(self) -> None:
        with pytest.raises(DataUnavailable, match=r"kind/file.bin ships with tfbook and is missing: reinstall tfbook"):
            fetch(a_file())


class TestMirror:
    @pytest.fixture
    def mirror(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        (tmp_path / "mirror" / "kind").mkdir(parents=True)
        monkeypatch.setenv("TFBOOK_MIRROR", str(tmp_path / "mirror"))
        return tmp_path / "mirror" / "kind" / "file.bin"

    def test_a_folder_is_tried_before_the_network(self, server: Server, mirror: Path, cache: Path) -> None:
        mirror.write_bytes(BODY)
        path = fetch(a_file(server.url()), retry=HASTE)
        assert path == cache / "kind" / "file.bin"
        assert path.read_bytes() == BODY
        assert server.asked == []

    @pytest.mark.parametrize("fault", ["missing", "corrupt", "a folder"])
    def test_a_bad_file_in_a_folder_is_passed_over(self, server: Server, mirror: Path, fault: str) -> None:
        if fault == "corrupt":
            mirror.write_bytes(WRONG)
        elif fault == "a folder":
            mirror.mkdir()
        server.replies = [GOOD]
        assert fetch(a_file(server.url()), retry=HASTE).read_bytes() == BODY
        assert len(server.asked) == 1

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
    def test_a_named_pipe_is_not_waited_for(self, server: Server, mirror: Path) -> None:
        """Opening one blocks until somebody writes to it."""
        os.mkfifo(mirror)
        with pytest.raises(DataUnavailable, match=rf"{mirror}: it is not a regular file"):
            fetch(a_file("http://127.0.0.1:9/"), retry=HASTE)
        assert not can_fetch(a_file("http://127.0.0.1:9/"))
        server.replies = [GOOD]
        assert fetch(a_file(server.url()), retry=HASTE).read_bytes() == BODY

    @pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs a device without an end")
    def test_a_device_without_an_end_is_not_read(self, mirror: Path) -> None:
        mirror.symlink_to("/dev/zero")
        with pytest.raises(DataUnavailable, match=rf"{mirror}: it is not a regular file"):
            fetch(a_file("http://127.0.0.1:9/"), retry=HASTE)

    def test_a_huge_file_in_a_folder_is_not_copied(self, mirror: Path, cache: Path) -> None:
        with mirror.open("wb") as file:
            file.truncate(1 << 40)  # sparse
        with pytest.raises(DataUnavailable, match=rf"{mirror}: it holds more than 1,000,000 bytes"):
            fetch(a_file("http://127.0.0.1:9/", most=10**6), retry=HASTE)
        assert contents(cache) == set()

    def test_a_folder_may_be_an_address(self, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """file:///…, with characters that an address writes otherwise; offline as well."""
        folder = mirror.parents[1].rename(mirror.parents[2] / "my mirror")
        (folder / "kind" / "file.bin").write_bytes(BODY)
        monkeypatch.setenv("TFBOOK_MIRROR", folder.as_uri())
        monkeypatch.setenv("TFBOOK_OFFLINE", "1")
        assert "%20" in folder.as_uri()
        assert can_fetch(a_file("http://127.0.0.1:9/"))
        assert fetch(a_file("http://127.0.0.1:9/"), retry=HASTE).read_bytes() == BODY

    @pytest.mark.parametrize("mirror", ["ftp://127.0.0.1/data", "s3://bucket", "file:///no/such/folder"])
    def test_an_address_of_another_kind_is_named(self, mirror: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """And asked once, since the next attempt cannot do better."""
        monkeypatch.setenv("TFBOOK_MIRROR", mirror)
        monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it was tried again"))
        reason = f"{mirror}/kind/file.bin: No connection adapters were found for '{mirror}"
        if mirror.startswith("file"):
            reason = "/no/such/folder/kind/file.bin: .*No such file"
        with pytest.raises(DataUnavailable, match=reason):
            fetch(a_file("ftp://127.0.0.1/x"), retry=replace(HASTE, attempts=3))

    def test_a_corrupt_file_in_a_folder_is_refused(self, mirror: Path, cache: Path) -> None:
        mirror.write_bytes(WRONG)
        with pytest.raises(DataUnavailable, match=rf"{mirror}: refused, sha256 is \w+; expected {SHA256}"):
            fetch(a_file("http://127.0.0.1:9/"), retry=HASTE)
        assert contents(cache) == set()

    @pytest.mark.parametrize("end", ["", "/"])
    def test_an_address_works_too(self, server: Server, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
        server.replies = [GOOD]
        monkeypatch.setenv("TFBOOK_MIRROR", server.url("mirror") + end)
        assert fetch(a_file("http://127.0.0.1:9/"), retry=HASTE).read_bytes() == BODY
        assert server.asked == ["GET /mirror/kind/file.bin"]

    def test_offline_keeps_folders_and_forbids_addresses(
        self, server: Server, mirror: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TFBOOK_OFFLINE", "1")
        with pytest.raises(DataUnavailable, match=str(mirror)):
            fetch(a_file(server.url()), retry=HASTE)
        mirror.write_bytes(BODY)
        assert fetch(a_file(server.url()), retry=HASTE).read_bytes() == BODY
        assert server.asked == []

    def test_offline_with_nothing_at_hand_says_so(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TFBOOK_OFFLINE", "1")
        monkeypatch.setenv("TFBOOK_MIRROR", server.url())
        with pytest.raises(
            DataUnavailable, match="TFBOOK_OFFLINE forbids the network and TFBOOK_MIRROR names no folder"
        ):
            fetch(a_file(server.url()), retry=HASTE)
        assert server.asked == []


class TestObtainable:
    def test_what_is_at_hand_is_not_asked_for(
        self, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server.replies = [GOOD]
        file = a_file(server.url())
        monkeypatch.setenv("TFBOOK_MIRROR", str(tmp_path))
        (tmp_path / "kind").mkdir()
        (tmp_path / "kind" / "file.bin").write_bytes(BODY)
        assert can_fetch(file)
        fetch(file)
        monkeypatch.delenv("TFBOOK_MIRROR")
        assert can_fetch(file)
        assert server.asked == []

    @pytest.mark.parametrize(
        ("reply", "expected"),
        [(GOOD, True), (answer(b"", status=404), False), (answer(b"", status=500), False), (hang_up, False)],
    )
    def test_an_address_is_asked_without_downloading(self, server: Server, reply: Reply, expected: bool) -> None:
        server.replies = [reply]
        assert can_fetch(a_file(server.url()), seconds=1.0) is expected
        assert {question.split()[0] for question in server.asked} == {"HEAD"}

    def test_any_address_will_do(self, server: Server) -> None:
        server.replies = [GOOD]
        assert can_fetch(a_file("http://127.0.0.1:9/", server.url()), seconds=1.0)

    def test_a_corrupt_mirror_and_no_network_is_no(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TFBOOK_MIRROR", str(tmp_path))
        monkeypatch.setenv("TFBOOK_OFFLINE", "1")
        (tmp_path / "kind").mkdir()
        (tmp_path / "kind" / "file.bin").write_bytes(WRONG)
        assert not can_fetch(a_file("http://127.0.0.1:9/"))

    def test_offline_asks_nobody(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        server.replies = [GOOD]
        monkeypatch.setenv("TFBOOK_OFFLINE", "1")
        assert not can_fetch(a_file(server.url()))
        assert server.asked == []

    def test_it_waits_for_neither_a_silent_server_nor_a_silent_name_server(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server.replies = [silence]
        begun = time.monotonic()
        assert not can_fetch(a_file(server.url()), seconds=0.2)
        monkeypatch.setattr(requests, "head", lambda *args, **kwargs: server.closing.wait(10))
        assert not can_fetch(a_file(server.url()), seconds=0.2)
        assert time.monotonic() - begun < 5

    @pytest.mark.parametrize("url", ["nonsense", "http://", "http://[", "ftp://127.0.0.1/x", "http://\u2603.invalid/"])
    def test_it_never_raises(self, url: str) -> None:
        assert not can_fetch(a_file(url), seconds=0.5)


def full_disk(path: Path, code: int) -> io.BufferedWriter:
    """A new file with room for 1,000 bytes."""

    class Crammed(io.FileIO):
        def write(self, data: Any) -> int:
            if self.tell() + len(data) > 1000:
                raise OSError(code, os.strerror(code))
            return super().write(data)

    return io.BufferedWriter(Crammed(path, "x"))


class TestDisk:
    @pytest.fixture
    def unprivileged(self) -> Iterator[Path]:
        """A folder that this process may read and not write, even where the tests run as root."""
        if os.name != "posix":
            pytest.skip("folders on Windows have no such permissions")
        user = os.geteuid()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "kind").mkdir()
            (folder / "kind" / "file.bin").write_bytes(BODY)
            for path in (folder, folder / "kind"):
                path.chmod(0o555)
            if user == 0:
                os.seteuid(65534)
            yield folder
            os.seteuid(user)
            for path in (folder, folder / "kind"):
                path.chmod(0o755)

    def test_a_read_only_cache_serves_what_it_holds(self, unprivileged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TFBOOK_DATA", str(unprivileged))
        assert fetch(a_file("http://127.0.0.1:9/")).read_bytes() == BODY
        assert can_fetch(a_file("http://127.0.0.1:9/"))
        assert contents(unprivileged) == {"file.bin"}

    @pytest.mark.parametrize("path", ["kind/other.bin", "other/file.bin", "file.bin"])
    def test_a_read_only_cache_says_what_to_set(
        self, unprivileged: Path, server: Server, monkeypatch: pytest.MonkeyPatch, path: str
    ) -> None:
        server.replies = [GOOD]
        monkeypatch.setenv("TFBOOK_DATA", str(unprivileged))
        with pytest.raises(
            DataUnavailable, match=rf"cache folder {unprivileged} cannot be written .* set TFBOOK_DATA to"
        ):
            fetch(a_file(server.url(), path=path), retry=HASTE)
        assert contents(unprivileged) == {"file.bin"}

    def test_a_cache_that_is_no_folder_says_what_to_set(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "plain").write_text("a file")
        monkeypatch.setenv("TFBOOK_DATA", str(tmp_path / "plain" / "cache"))
        with pytest.raises(DataUnavailable, match=r"cannot be written .* set TFBOOK_DATA to a folder that can"):
            fetch(a_file("http://127.0.0.1:9/"), retry=HASTE)
        assert not can_fetch(a_file("http://127.0.0.1:9/"))

    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
    @pytest.mark.parametrize("source", ["server", "mirror"])
    def test_a_full_disk_is_reported_as_such(
        self, server: Server, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, source: str
    ) -> None:
        server.replies = [GOOD]
        if source == "mirror":
            (tmp_path / "kind").mkdir()
            (tmp_path / "kind" / "file.bin").write_bytes(BODY)
            monkeypatch.setenv("TFBOOK_MIRROR", str(tmp_path))
        open_ = Path.open
        monkeypatch.setattr(
            Path, "open", lambda path, *mode: full_disk(path, code) if path.suffix == ".part" else open_(path, *mode)
        )
        with pytest.raises(DataUnavailable, match=rf"no space left on the disk for {cache}.* set TFBOOK_DATA to"):
            fetch(a_file(server.url()), retry=HASTE)
        assert contents(cache) == set()
        assert len(server.asked) == (source == "server")  # no other source would help

    def test_an_interrupt_leaves_nothing(self, server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(*args: Any) -> None:
            assert any(name.endswith(".part") for name in contents(cache))
            raise KeyboardInterrupt

        server.replies = [GOOD]
        monkeypatch.setattr("tfbook.data.transfer.tqdm.update", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetch(a_file(server.url()), retry=HASTE)
        assert contents(cache) == set()


# The package itself is left out, since importing it would import torch, which takes seconds.
CHILD = f"""
import sys, types
package = sys.modules["tfbook.data"] = types.ModuleType("tfbook.data")
package.__path__ = [{str(Path(download.__file__).parent)!r}]
from tfbook.data.download import File, fetch
print("ready", flush=True)
sys.stdin.readline()
print(fetch(File(path="kind/file.bin", urls=(sys.argv[1],), sha256="{SHA256}")))
"""


class TestTogether:
    @pytest.fixture
    def start(self, server: Server) -> Iterator[Callable[[], subprocess.Popen[str]]]:
        """Starts a process that fetches from the server once a line is sent to it."""
        children = []

        def child() -> subprocess.Popen[str]:
            command = [sys.executable, "-c", CHILD, server.url()]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            children.append(subprocess.Popen(command, cwd=ROOT, **pipes))
            return children[-1]

        yield child
        for process in children:
            process.kill()
            process.communicate()

    def test_two_processes_download_once(
        self, server: Server, cache: Path, start: Callable[[], subprocess.Popen[str]]
    ) -> None:
        server.replies = [slow(GOOD, 0.5)]
        children = [start(), start()]
        for child in children:
            assert child.stdout.readline() == "ready\n"
        for child in children:
            child.stdin.write("\n")
            child.stdin.flush()
        for child in children:
            assert child.communicate(timeout=30)[0].strip() == str(cache / "kind" / "file.bin")
        assert (cache / "kind" / "file.bin").read_bytes() == BODY
        assert len(server.asked) == 1
        assert contents(cache) == {"file.bin", "file.bin.verified"}

    def test_what_a_killed_process_left_is_cleared_away(
        self, server: Server, cache: Path, start: Callable[[], subprocess.Popen[str]]
    ) -> None:
        server.replies = [stall(BODY, 100_000), GOOD]
        child = start()
        child.stdin.write("\n")
        child.stdin.flush()
        while not any(path.stat().st_size for path in cache.rglob("*.part")):
            time.sleep(0.01)
        child.kill()
        child.wait()
        assert fetch(a_file(server.url()), retry=HASTE).read_bytes() == BODY
        assert contents(cache) == {"file.bin", "file.bin.verified"}

    def test_threads_download_once(self, server: Server) -> None:
        server.replies = [slow(GOOD, 0.2)]
        with ThreadPoolExecutor(4) as pool:
            paths = list(pool.map(lambda _: fetch(a_file(server.url())), range(4)))
        assert {path.read_bytes() for path in paths} == {BODY}
        assert len(server.asked) == 1

    def test_a_lock_that_is_never_released_delays_and_no_more(self, server: Server, cache: Path) -> None:
        server.replies = [GOOD]
        (cache / "kind").mkdir(parents=True)
        with filelock.FileLock(cache / "kind" / "file.bin.lock"):
            assert fetch(a_file(server.url()), retry=replace(HASTE, download=1.0)).read_bytes() == BODY

    def test_a_file_system_without_locks_will_do(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*args: Any, **kwargs: Any) -> None:
            raise NotImplementedError("no flock here")

        server.replies = [GOOD]
        monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
        assert fetch(a_file(server.url()), retry=HASTE).read_bytes() == BODY
