"""Answers to the predictions of lesson 14: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "borders": """
Plain windows get everything right that has its partner in the same window, and guess where the vertical border stands
between the two: nothing of the partner's color ever arrives, however long we train and however many blocks we add.
(The horizontal border does no harm: a row never crosses it.)

Yours crosses the border. A shifted window spans the middle, so its places hear from both sides, and the plain windows
of the next block hand it on. With four blocks, everything can arrive everywhere.
""",
        "reach": """
Up to 4, one place for each block, and all of it; from 5 on it guesses, in each run. Filters of 5 × 5 hear two places
to each side, 8 in four blocks, and there they are right at all distances. So it *was* the reach.

The gray lines are arithmetic: right where the partner is heard, one in five where it isn't. What four blocks allow,
these models learn by this rule, with one exception: with one of three seeds, the Mixer got stuck below the most
frequent color.
""",
        "contest": """
Attention learned it as far as one block hears. Global attention and the hybrid, with one block of it instead of four,
have it everywhere. Plain windows have 88 and 94% of the twins in their window, and guess across, as they must: for
them, reach *is* missing. For 5 × 5 filters it isn't: they hear from everywhere, and guess in one window, too. Of all
fixed weights, the best has 43% there.

Shifted windows hear everything in two blocks, and still get only 24 and 29% across a border. The color would have to
be handed on by a place that has another kind itself. The pool is about halfway, near and far.

A filter or a Mixer would have to carry "here is a red fish" to every place, for eight kinds at once. Attention does it
in one step: the white fish's query meets the red fish's key. (This is our reading. What we measured is who learns it in
600 steps.)
""",
        "pool": """
The pool learns it: it was slow, not stuck. Shifted windows were slow, too: in one window they have nearly all now, and
across a border 77 and 78%, so two blocks can hand a twin's color on. The Mixer, with twice its steps, still guesses.
(Two seeds each, at one learning rate, the lower one.)

How can a sum answer? Each place may add "fish: red" to it, a number in a slot for this kind and this color. The sum
over all places then holds a whole table of kind × color, and the white fish reads the line of its own kind. With eight
kinds and five colors, the table fits into 82 numbers. Attention needs no table, it looks one entry up, which may be why
it was sooner. (The table is how it *can* be done; we have not looked for it in the trained pool.)
""",
        "looks": """
Four fifths, 81%, where equal attention has 11% and another object of the same picture 3%. Not in the object's middle,
though: the maps of Section 1 show that the captioner likes the lower right edge. Nothing forbids that. What a place
sees is several places wide, so one at the edge can know the object as well.
""",
        "hidden": """
Without the object's own places, 62% of the words stay right, of 99.7%. Without as many that are brightest on the map,
31%; the three brightest alone cost as much as the whole object (65%). Of the touched places, the brighter half matters
(68%), the darker half doesn't (99.7%), nor do as many others. So here the map told which places this word depends on,
and better than the object's outline did. (One captioner, and hiding is done at one step only.)

The neighbors matter since the CNN's filters overlap: a place beside the object has seen it as well. Without them, too,
16% stay right: about what naming any of eight kinds or six colors would get (15%).
""",
        "orders": """
In the order of the list, all three draw nearly the same box, in the middle: each is told of every rectangle equally
often, and the middle is the least wrong for all. They find 6%.

From left to right is better, 50 to 58%: the picture itself tells this order. With a matching, they find 70 to 78%. With
three times the steps, it is 86% from left to right and 98.5% matched (one seed each). So this order is slower, and we
can't say that it stays behind.
""",
    }
)
