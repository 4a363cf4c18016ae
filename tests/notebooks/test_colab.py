"""The imitation of Colab: an empty folder, a stub of google.colab, tfbook from this tree and nothing replaced."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import address
import colab
import pytest
from samples import code, notebook, save

CHECKS = """
import os
import google.colab
import tfbook
assert os.listdir() == ["a.ipynb"], os.listdir()
assert "COLAB_RELEASE_TAG" in os.environ
"""


@pytest.mark.slow
def test_a_lesson_runs_alone_with_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "false")  # pip's way to say: build with the hatchling that is here
    good = save(tmp_path / "a.ipynb", notebook(code(CHECKS)))
    bad = save(tmp_path / "bad.ipynb", notebook(code("1 / 0")))
    with pytest.raises(SystemExit, match=r"^failed as in Colab: bad.ipynb$"):
        colab.main([str(good), str(bad), "--python", sys.executable, "--wheel"])
    assert " s  a.ipynb  ok\n" in capsys.readouterr().out


def test_the_public_address_leads_to_this_clone(tmp_path: Path) -> None:
    environment = colab.colab_environment(tmp_path)
    url = f"https://github.com/{address.slug()}"
    found = subprocess.run(
        ["git", "ls-remote", "--get-url", url], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == colab.ROOT.as_uri()


def test_a_replaced_package_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = iter([["numpy==2.1.3"], ["numpy==2.4.6"]])
    monkeypatch.setattr(colab, "make_venv", lambda folder, packages_of: Path(sys.executable))
    monkeypatch.setattr(colab, "kept_versions", lambda python: next(versions))
    monkeypatch.setattr(colab, "run_lesson", lambda *arguments: "")
    with pytest.raises(SystemExit, match=r"packages changed from \['numpy==2.1.3'\] to \['numpy==2.4.6'\]"):
        colab.main([str(save(tmp_path / "a.ipynb", notebook(code("1"))))])


def test_a_tfbook_from_elsewhere_is_named(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(colab.ROOT)}
    elsewhere = colab.tfbook_is_elsewhere(tmp_path, Path(sys.executable), environment)
    assert elsewhere == str(colab.ROOT / "tfbook" / "__init__.py")
    inside = colab.tfbook_is_elsewhere(colab.ROOT, Path(sys.executable), environment)
    assert inside == ""


def test_an_unknown_lesson_is_refused() -> None:
    with pytest.raises(SystemExit, match="no such lesson"):
        colab.main(["77"])
