"""An error that an answer raised, in the terms of its exercise."""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import torch

ERRORS = {  # what PyTorch says → what to look for
    "must match the size of tensor": "is an axis of length 1 missing, as by [:, None]?",
    "shapes cannot be multiplied": "is a transpose missing, or one too many?",
    "of batch2 tensor to be": "is a transpose missing, or one too many?",
    "torch.return_types.max": "`max` along an axis returns the numbers and their places: take its `.values`",
    "does not have a grad_fn": "did `name = …` make a new tensor, which is not recorded? `name -= …` keeps the old one",
    "being used in an in-place operation": "change it inside `with torch.no_grad():`",
    "has no attribute 'zero_grad'": "a tensor's gradient is its `.grad`: clear it by `.grad = None` or `.grad.zero_()`",
    "'NoneType' object has no attribute 'zero_'": "before the first `backward()` there is no `.grad`",
    "'float' and 'NoneType'": "a tensor made anew by `name = …` has no `.grad`; `name -= …` keeps the old one",
}


def error_line(error: BaseException, answer: Callable[..., Any] | None) -> str:
    """The error's first line, the last line of the answer's own that it came through, and the shapes that met there."""
    try:
        text = f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(": ")
    except Exception:  # its own text may raise
        text = type(error).__name__
    code = getattr(answer, "__code__", None)
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code is code]
    if code is None or not frames:
        return text
    frame, line = frames[-1]
    source = linecache.getline(code.co_filename, line).strip()
    name = getattr(answer, "__name__", code.co_name)
    shapes = _shapes(source, frame.f_locals) if isinstance(error, RuntimeError | IndexError) else ""
    hint = next((f"; {words}" for said, words in ERRORS.items() if said in text), "")
    if "multiplied" in text and {"chunk", "split", "tensor_split"} & set(code.co_names):
        hint += " Or is one of them cut along the wrong dimension?"
    return f"{text}{shapes}{hint} (line {line - code.co_firstlineno + 1} of {name}{source and f': {source}'})"


def _shapes(source: str, values: Mapping[str, Any]) -> str:
    """The shapes of the tensors that a line names, such as "; here query is (2, 3) and keys (2, 5, 3)"."""
    found = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
    named = [name for name in dict.fromkeys(re.findall(r"[^\W\d]\w*", source)) if name in found] or list(found)
    shapes = [f"{name} has shape {tuple(found[name].shape)}" for name in named]
    return "; here " + " and ".join([", ".join(shapes[:-1])] * (len(shapes) > 1) + shapes[-1:]) if shapes else ""
