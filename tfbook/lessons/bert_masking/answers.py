"""Answers to the predictions of lesson 08: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "guessers": """
Repeating the first word of the kind is right surprisingly often. Many stories have two characters, so for names
it is a coin toss, and a story often has only one thing. Counting neighbors hardly helps, since most answers are
elsewhere in the story.

The GPT is the best so far, with 72%. Where the name came before the blank, it is right nine times in ten; where
it comes only later, it mostly guesses. A model that reads both sides should do better there, in a single pass.
(Score the whole story with each of the 12 names, and the same GPT gets all 374 names right, at 12 passes per
blank.) (A **claim** checks a number against a bound set in advance.)
""",
        "names": """
Where the name comes only later, BERT finds nearly all of them. Where it came before, the two are about level. So
nearly all of its lead comes from the right of the blank (at one pass: scoring every name, the GPT missed none).

Results differ from run to run: names improve steadily, things in a jump that may come late. There are only 20
places, so each is worth five points, and in our runs most of them stay wrong (the larger model below still
misses 13).
""",
        "sixteen_labels": """
From scratch, 16 labels are worse than always saying *name*. The pretrained model tags almost all words
correctly, including those never labeled. Nobody told it that a kite is like a drum. A likely reason: both fit
into the same blanks, so pretraining can give them similar vectors, and a handful of labels is enough to name the
groups. (We did not measure the vectors. Three of the four kinds are also those that our pretraining masked most
often.)
""",
        "hero": """
Tossing a coin would get half of them, and the rule *the first name is the hero* gets all 605 right. So the task
doesn't show that a model keeps track of who is who, only how much of a simple rule 16 labels can bring out.
""",
    }
)
