"""Study of lesson 19: tables, graphs, sounds, and images with texts, each cut into tokens for the same blocks."""

from __future__ import annotations

from tfbook.lessons.modalities import (
    asking as asking,
    asking_pictures as asking_pictures,
    asking_rivals as asking_rivals,
    board as board,
    clubs as clubs,
    contest as contest,
    order as order,
    picture_contest as picture_contest,
    pictures_and_words as pictures_and_words,
    rings as rings,
    rivals as rivals,
    sound as sound,
    stand as stand,
)
from tfbook.lessons.modalities.answers import answer as answer
from tfbook.lessons.modalities.claims import CLAIMS as CLAIMS

pairs = pictures_and_words  # its short name in the notebook
