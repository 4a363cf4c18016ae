"""One field names the repository; every link to it follows, and links to others stay."""

from __future__ import annotations

import subprocess
from pathlib import Path

import address
import pytest

OLD, NEW = "OWNER/tfbook", "ada/attention-course"
TEXTS = {
    "pyproject.toml": '[project.urls]\nRepository = "https://github.com/{}"\nIssues = "https://github.com/{}/issues"\n',
    "README.md": "[badge](https://colab.research.google.com/github/{}/blob/main/notebooks/01_a.ipynb) "
    "[b](https://mybinder.org/v2/gh/{}/main) See https://github.com/{}. git clone https://github.com/{}.git "
    "![p](https://raw.githubusercontent.com/{}/main/p.png)",
    "CITATION.cff": 'repository-code: "https://github.com/{}"\n',
    "notebooks/01_a.ipynb": '"source": ["package = \\"tfbook @ git+https://github.com/{}\\"\\n"]',
    "tools/setup_cell.py": 'package = "tfbook @ git+https://github.com/{}"',
    ".github/ISSUE_TEMPLATE/config.yml": "url: https://github.com/{}/discussions",
}
OTHERS = "https://github.com/karpathy/nanoGPT https://github.com/x/tfbook-extras https://example.org/OWNER/tfbook"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose links all point to OWNER/tfbook."""
    for name, text in TEXTS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.replace("{}", OLD), encoding="utf-8")
    (tmp_path / "CONTRIBUTING.md").write_text(OTHERS, encoding="utf-8")
    monkeypatch.setattr(address, "ROOT", tmp_path)
    return tmp_path


def test_one_address_is_in_step(tree: Path) -> None:
    assert address.slug() == OLD
    address.main(["--check"])


def test_a_new_address_goes_everywhere_and_back(tree: Path) -> None:
    for slug in (NEW, OLD):
        address.main([f"https://github.com/{slug}"])
        assert address.slug() == slug
        for name, text in TEXTS.items():
            assert (tree / name).read_text(encoding="utf-8") == text.replace("{}", slug)
        assert (tree / "CONTRIBUTING.md").read_text(encoding="utf-8") == OTHERS
        address.main(["--check"])


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "pyproject.toml"])
def test_a_link_that_differs_is_found_and_mended(tree: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / name).write_text(TEXTS[name].replace("{}", "someone/tfbook"), encoding="utf-8")
    with pytest.raises(SystemExit, match=r"the files above do not point to https://github.com/OWNER/tfbook"):
        address.main(["--check"])
    assert capsys.readouterr().out.splitlines() == [str(Path(name))]
    address.main([f"https://github.com/{OLD}"])
    assert (tree / name).read_text(encoding="utf-8") == TEXTS[name].replace("{}", OLD)


@pytest.mark.parametrize(
    "url", ["github.com/a/b", "https://gitlab.com/a/b", "https://github.com/a", "https://github.com/a/b/"]
)
def test_what_is_no_address_is_refused(tree: Path, url: str) -> None:
    with pytest.raises(SystemExit, match=r"expected https://github.com/NAME/REPO"):
        address.main([url])
    assert address.slug() == OLD


# ---- the address of git's remote ---------------------------------------------------------------------------------


def cloned_from(tree: Path, url: str) -> None:
    for command in (["init", "--quiet"], ["remote", "add", "origin", url]):
        subprocess.run(["git", "-C", str(tree), *command], check=True)


@pytest.mark.parametrize(
    "url",
    [
        f"https://github.com/{NEW}.git",
        f"https://github.com/{NEW}",
        f"https://github.com/{NEW}/",
        f"https://ada:secret@github.com/{NEW}.git",
        f"git@github.com:{NEW}.git",
        f"ssh://git@github.com/{NEW}.git",
        f"ssh://git@ssh.github.com:443/{NEW}.git",
    ],
)
def test_without_an_address_git_is_asked(tree: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    cloned_from(tree, url)
    address.main(["--notice"])
    said = capsys.readouterr().out
    assert said.startswith("::notice ")
    assert "run `python tools/address.py`" in said
    assert "secret" not in said
    address.main([])
    assert address.slug() == NEW
    for name, text in TEXTS.items():
        assert (tree / name).read_text(encoding="utf-8") == text.replace("{}", NEW)
    capsys.readouterr()
    address.main(["--notice"])
    assert capsys.readouterr().out == "the address is right\n"


@pytest.mark.parametrize(
    "url",
    [
        "https://gitlab.com/ada/course.git",
        "git@example.org:ada/course.git",
        "https://ada:secret@example.org/github.com/x.git",
        "https://github.com.example.org/ada/course",
        "/srv/git/course.git",
    ],
)
def test_a_remote_elsewhere_is_no_address(tree: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    cloned_from(tree, url)
    with pytest.raises(SystemExit, match=r"not on GitHub; say the address: python tools/address\.py https") as caught:
        address.main([])
    assert "secret" not in str(caught.value)
    assert address.slug() == OLD
    address.main(["--notice"])
    assert capsys.readouterr().out == "the address is right\n"


def test_where_there_is_no_remote_it_says_so(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tree.parent))
    with pytest.raises(SystemExit, match="git knows no remote `origin` here"):
        address.main([])
    monkeypatch.setenv("PATH", str(tree))
    with pytest.raises(SystemExit, match="git knows no remote `origin` here"):
        address.main([])
