"""Writes are whole or do not happen, to regular files alone; notes of solved exercises survive whatever is there."""

import ast
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tfbook import files
from tfbook.course.solved import note, progress_file, solved
from tfbook.files import atomic_write, write_text

ROOT = Path(__file__).parents[2]
posix = pytest.mark.skipif(os.name != "posix", reason="Windows has none of these")


# ---- what is no regular file -------------------------------------------------------------------------------------


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(path.parent)  # the path of a socket may have 107 characters
        server.bind(path.name)
        os.chdir(here)


def _device(path: Path) -> None:
    """A null device of our own, which only root may make."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")


def _folder(path: Path) -> None:
    path.mkdir()


def _link_to(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def link(path: Path) -> None:
        make(path.with_name("target"))
        path.symlink_to("target")

    return link


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


ODD = {
    "pipe": _pipe,
    "socket": _socket,
    "device": _device,
    "folder": _folder,
    "loop": _loop,
    **{f"link to a {make.__name__[1:]}": _link_to(make) for make in (_pipe, _socket, _device, _folder)},
}


def kinds(folder: Path) -> dict[str, tuple[int, int]]:
    """Every name with its kind and its inode: a thing that was replaced has another one."""
    return {path.name: (stat.S_IFMT(path.lstat().st_mode), path.lstat().st_ino) for path in folder.iterdir()}


@posix
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("keep", [False, True])
def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path, kind: str, keep: bool) -> None:
    path = tmp_path / "there"
    ODD[kind](path)
    before = kinds(tmp_path)
    with pytest.raises(OSError, match="Not a regular file"), atomic_write(path, keep=keep) as file:
        file.write(b"new")
    assert kinds(tmp_path) == before


@posix
@pytest.mark.parametrize("kind", ODD)
def test_nor_is_what_stands_in_the_place_of_the_one_before(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "run.pt"
    path.write_bytes(b"old")
    ODD[kind](tmp_path / "run.pt.previous")
    before = kinds(tmp_path)
    with pytest.raises(OSError, match="Not a regular file"), atomic_write(path, keep=True) as file:
        file.write(b"new")
    assert kinds(tmp_path) == before
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("path", ["", ".", ".."])
def test_the_current_folder_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(OSError, match="Not a regular file"):
        write_text(path, "new")
    assert [*tmp_path.rglob("*")] == [tmp_path / "here"]


@posix
@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_followed_and_stays(tmp_path: Path, exists: bool) -> None:
    """As of a folder that is kept elsewhere; the one before it stays beside the file."""
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "file", tmp_path / "link"
    if exists:
        target.write_bytes(b"old")
    link.symlink_to(target)
    with atomic_write(link, keep=True) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert files.previous(link) == tmp_path / "elsewhere" / "file.previous"
    assert files.previous(link).exists() == exists


@posix
def test_a_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o600)
    write_text(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# ---- every writer ------------------------------------------------------------------------------------------------

WRITES = {"write_text", "write_bytes", "copy", "copy2", "copyfile"}
IN_TEMPORARY_FOLDERS = {"tools/colab.py", "tools/mutate.py"}
BY_ITSELF = {"tools/english_french/build.py": 1}  # writes beside the file and renames, without tfbook


def test_no_tool_writes_in_place() -> None:
    """A call to `files.write_text` is one of a name or of the module `files`; any other is a method of a path."""
    found = {}
    for path in (ROOT / "tools").rglob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Call)]
        methods = [call for call in calls if isinstance(call, ast.Attribute) and call.attr in WRITES]
        found[path.relative_to(ROOT).as_posix()] = sum(ast.unparse(call.value) != "files" for call in methods)
    found = {name: count for name, count in found.items() if count and name not in IN_TEMPORARY_FOLDERS}
    found = {name: count for name, count in found.items() if not name.startswith("tools/mutation/")}  # in a cache
    assert found == BY_ITSELF


FULL = """
import sys
sys.path[:0] = [{tools!r}, {root!r}]
import resource, signal
import book
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
notebook = book.read(book.Path({source!r}))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
book.write(book.Path({target!r}), notebook)
"""


@posix
def test_a_disk_that_is_full_half_way_leaves_the_old_notebook(tmp_path: Path) -> None:
    """No file of the process may grow beyond 1,000 bytes, which the system refuses as it refuses a full disk."""
    source = next((ROOT / "notebooks").glob("00_*.ipynb"))
    target = tmp_path / "lesson.ipynb"
    target.write_text("old", encoding="utf-8")
    code = FULL.format(tools=str(ROOT / "tools"), root=str(ROOT), source=str(source), target=str(target))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "File too large" in done.stderr
    assert target.read_text(encoding="utf-8") == "old"
    assert [*tmp_path.iterdir()] == [target]


# ---- notes of what was solved ------------------------------------------------------------------------------------


@pytest.fixture
def progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TFBOOK_PROGRESS", str(tmp_path / "progress.json"))
    return tmp_path / "progress.json"


@posix
@pytest.mark.parametrize("kind", ODD)
def test_progress_that_leads_to_no_regular_file_is_not_kept(progress: Path, kind: str) -> None:
    """Not even read: a named pipe would never end."""
    ODD[kind](progress)
    before = kinds(progress.parent)
    note("transformer", "normalize")
    assert solved() == {}
    assert kinds(progress.parent) == before


def test_an_unknown_user_s_home_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TFBOOK_DATA", "TFBOOK_PROGRESS"):
        monkeypatch.setenv(name, "~nobody_x/here")
        note("transformer", "normalize")
        assert solved() == {}
        with pytest.raises(FileNotFoundError, match=f"{name} is '~nobody_x/here'; expected a path, and there is no"):
            progress_file()
    assert [*tmp_path.iterdir()] == []


def _shape(dice: Random, depth: int = 0) -> Any:
    """Anything that JSON can say."""
    kind = dice.randrange(8 if depth < 3 else 6)
    simple = [None, True, dice.randrange(-9, 9), dice.random() * 1e308, dice.choice(["", "softmax", "\ud800", "é"]), {}]
    if kind < len(simple):
        return simple[kind]
    values = [_shape(dice, depth + 1) for _ in range(dice.randrange(4))]
    return values if kind == 6 else {dice.choice("abcd"): value for value in values}


def test_odd_shapes_lose_nothing(progress: Path) -> None:
    """Of 200 files, what is legible is kept, and a file that was not legible throughout is kept beside it."""
    dice = Random(31)
    for turn in range(200):
        shape = _shape(dice)
        if turn % 2:
            shape = {"transformer": ["normalize", *[_shape(dice) for _ in range(2)]], "odd": shape}
        text = json.dumps(shape)
        progress.write_text(text, encoding="utf-8")
        before = solved()
        note("decoding", "beam")
        assert solved() == before | {"decoding": ["beam"]}
        assert turn % 2 == 0 or "normalize" in solved()["transformer"]
        kept = [path.read_text(encoding="utf-8") for path in progress.parent.glob("*.damaged*")]
        assert (text in kept) == (before != shape)
        for path in progress.parent.iterdir():
            path.unlink()


ILLEGIBLE = {
    "nested": b"[" * 200_000,
    "nested below a lesson": b'{"transformer": ["normalize"], "odd": ' + b'{"a":' * 100_000,
    "cut": b'{"transformer": ["norm',
    "UTF-16": '{"transformer": ["normalize"]}'.encode("utf-16"),
    "zeros": bytes(4096),
    "huge": b" " * (1 << 21),
    "number": b"1" * 10_000,
}


@pytest.mark.parametrize("kind", ILLEGIBLE)
def test_an_illegible_file_is_kept(progress: Path, kind: str) -> None:
    """Each of them, under a name of its own."""
    for name in ("progress.json.damaged", "progress.json.damaged-2"):
        progress.write_bytes(ILLEGIBLE[kind])
        assert solved() == {}
        note("decoding", "beam")
        assert solved() == {"decoding": ["beam"]}
        assert (progress.parent / name).read_bytes() == ILLEGIBLE[kind]


def test_a_byte_order_mark_is_read_over(progress: Path) -> None:
    """As editors on Windows write it."""
    progress.write_bytes(b"\xef\xbb\xbf" + b'{"transformer": ["normalize"]}')
    note("decoding", "beam")
    assert solved() == {"transformer": ["normalize"], "decoding": ["beam"]}


NOTES = "from tfbook.course.solved import note\nfor n in range(20): note('lesson {0}', f'exercise {{n}}')"


def test_processes_that_note_at_once_lose_nothing(progress: Path) -> None:
    """Eighty notes of four processes."""
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    running = [subprocess.Popen([sys.executable, "-c", NOTES.format(n)], cwd=ROOT, env=env) for n in range(4)]
    assert [process.wait(timeout=120) for process in running] == [0] * 4
    assert {slug: len(names) for slug, names in solved().items()} == {f"lesson {n}": 20 for n in range(4)}


@posix
def test_a_killed_note_leaves_what_was_there(progress: Path) -> None:
    """Its lock ends with it."""
    note("transformer", "normalize")
    code = (
        "import os, signal, tfbook.files\nfrom tfbook.course.solved import note\n"
        "tfbook.files.os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)\nnote('decoding', 'beam')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == -signal.SIGKILL
    assert solved() == {"transformer": ["normalize"]}
    note("decoding", "greedy")
    assert solved() == {"transformer": ["normalize"], "decoding": ["greedy"]}
    assert not [*progress.parent.glob("*.part")]
