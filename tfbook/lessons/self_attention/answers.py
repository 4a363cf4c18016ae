"""The answers to the predictions of lesson 03."""

from __future__ import annotations

from tfbook.course.predictions import Answers

answer = Answers({})
