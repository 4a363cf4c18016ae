"""Set up every test: signatures checked at run time, no cache, the same random numbers, skips that say why."""

import os
import random
import sys
from collections.abc import Iterator

if "PYTEST_XDIST_WORKER" in os.environ:  # two workers with two threads each on two cores run many times slower
    os.environ.setdefault("OMP_NUM_THREADS", "1")
if os.environ.get("TFBOOK_CHECK", "1") != "0":  # 0 helps with a debugger
    import jaxtyping  # before the first import of tfbook and of the corpus's generator, whose signatures it checks

    # The tower lets an int stand for a float, as type checkers do.
    checker = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"
    jaxtyping.install_import_hook(["tfbook", "english_french"], checker)

os.environ["HF_HUB_OFFLINE"] = "1"  # Hugging Face's models are built with random weights: nothing is downloaded

import hypothesis
import matplotlib
import numpy as np
import pytest
import torch

torch.set_num_threads(1)  # tests are small: a second thread gains nothing, and waits where another process wants a core
matplotlib.use("agg")  # here and not by MPLBACKEND, which the kernels that tests start would inherit
hypothesis.settings.register_profile("tfbook", deadline=None, derandomize=True)
hypothesis.settings.load_profile("tfbook")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu` where there is none and tests marked `real` unless the real corpora are offered."""
    no_gpu = pytest.mark.skip(reason="needs a CUDA device and torch finds none")
    no_corpora = pytest.mark.skip(reason="needs the real corpora: set TFBOOK_MIRROR, or TFBOOK_REAL=1 with a network")
    has_gpu = torch.cuda.is_available()
    has_corpora = bool(os.environ.get("TFBOOK_MIRROR")) or os.environ.get("TFBOOK_REAL") == "1"
    for item in items:
        if not has_gpu and item.get_closest_marker("gpu"):
            item.add_marker(no_gpu)
        if not has_corpora and item.get_closest_marker("real"):
            item.add_marker(no_corpora)


@pytest.fixture(scope="session", autouse=True)
def empty_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Point TFBOOK_DATA at an empty folder, so that no test reads or fills the user's cache."""
    os.environ["TFBOOK_DATA"] = str(tmp_path_factory.mktemp("tfbook-data"))


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Seed every generator that a test may draw from without saying so."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 (code under test may use the old generator)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def no_open_figures() -> Iterator[None]:
    """Close what a test has drawn: from the twentieth open figure on, matplotlib warns."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check of signatures at run time: for errors as a reader gets them, and where time matters."""
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
