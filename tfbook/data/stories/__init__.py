"""The story world: short stories with known facts, deterministic from a seed.

`story(seed)` tells one, `check_story(text)` reads one back and counts contradictions, `questions(story)` asks
about it and `endings(story)` offers two endings. `lexicon` holds the words, `events.txt` what can happen and how it is
told, `plots` the plans; `Stories` is the corpus that every lesson shares.
"""

from tfbook.data.stories.checker import Fault, Verdict, check_story, summary
from tfbook.data.stories.corpus import (
    WORLD,
    Stories,
    StoryBatches,
    read_stories,
    story_ids,
    told,
    words_of_plays_alone,
    world_words,
)
from tfbook.data.stories.lexicon import Person, Thing, sentences, words_of, written
from tfbook.data.stories.plots import story
from tfbook.data.stories.questions import Endings, Question, endings, questions
from tfbook.data.stories.teller import Story, World

__all__ = [
    "WORLD",
    "Endings",
    "Fault",
    "Person",
    "Question",
    "Stories",
    "Story",
    "StoryBatches",
    "Thing",
    "Verdict",
    "World",
    "check_story",
    "endings",
    "questions",
    "read_stories",
    "sentences",
    "story",
    "story_ids",
    "summary",
    "told",
    "words_of",
    "words_of_plays_alone",
    "world_words",
    "written",
]
