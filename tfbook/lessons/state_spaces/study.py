"""Lesson 17: a state of fixed size, what it keeps and what it has to forget."""

from __future__ import annotations

from tfbook.lessons.state_spaces.answers import answer as answer
from tfbook.lessons.state_spaces.claims import CLAIMS as CLAIMS
from tfbook.lessons.state_spaces.recall import Reader as Reader, recalled as recalled, train_reader as train_reader
from tfbook.lessons.state_spaces.telling import (
    as_text as as_text,
    held_out_loss as held_out_loss,
    state_bytes as state_bytes,
    storyteller as storyteller,
    told_by as told_by,
    train_teller as train_teller,
)
