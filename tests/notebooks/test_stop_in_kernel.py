"""The stop button of a notebook, pressed while a lesson trains: the loop ends, and the next cells run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from book import NOTEBOOKS, read
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

LESSON = NOTEBOOKS / "01_bahdanau_attention.ipynb"
TRAINS, USES = "fixed_losses = train(", "translate(fixed"


@pytest.fixture
def kernel() -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    """A kernel beside the notebooks, at scale quick."""
    environment = os.environ | {"TFBOOK_SCALE": "quick", "TFBOOK_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    manager, client = start_new_kernel(startup_timeout=120, env=environment, cwd=str(NOTEBOOKS))
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def _run(client: BlockingKernelClient, source: str) -> str:
    """What the cell printed; it must not fail."""
    printed = []

    def keep(message: dict) -> None:
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    reply = client.execute_interactive(source, timeout=300, output_hook=keep, allow_stdin=False)
    assert reply["content"]["status"] == "ok", reply["content"]
    return "".join(printed)


@pytest.mark.slow
def test_a_training_that_is_stopped_lets_the_next_cells_run(
    kernel: tuple[KernelManager, BlockingKernelClient],
) -> None:
    manager, client = kernel
    cells = [cell.source for cell in read(LESSON).cells if cell.cell_type == "code"]
    trains = next(number for number, source in enumerate(cells) if TRAINS in source)
    uses = next(number for number, source in enumerate(cells) if number > trains and USES in source)
    for source in cells[:trains]:
        _run(client, source)
    _run(client, "steps, in_full = 100_000, steps")
    client.execute(cells[trains], allow_stdin=False)
    while client.get_iopub_msg(timeout=120)["msg_type"] not in ("stream", "display_data"):
        pass  # until the bar is there
    time.sleep(2)
    manager.interrupt_kernel()
    reply = client.get_shell_msg(timeout=120)
    assert reply["content"]["status"] == "ok", reply["content"]
    assert 0 < int(_run(client, "print(len(fixed_losses))")) < 100_000
    for source in cells[trains + 1 : uses + 1]:
        _run(client, source)
