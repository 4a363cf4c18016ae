"""Answers to the predictions of lesson 19: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers
from tfbook.lessons.modalities.sound_answers import SENSE_ANSWERS

answer = PredictionAnswers(
    {
        "stand": """
Ridge regression stays far away, at 8 cones: it can neither make the step at $3 nor know that warmth is worth nothing
in rain. Trees and your model both come close to 3. The product *warm and dry* is easy for both, by splitting twice or
by attending from one column to another.
""",
        "reasons": """
Trees and FT-Transformer both, and about equally: R² falls from 0.93 to 0.80 and 0.82 (the noise leaves room for 0.95).
The linear model loses nothing, since a linear function of turned axes is still a linear function. A tree asks about
one column at a time, and turned columns mean nothing by themselves. FT-Transformer, too, begins with a token per
column. The rival that tests this is an MLP, which prefers no axis: it keeps its 0.88 and is now ahead of both. So
FT-Transformer shares the trees' taste for columns that mean something by themselves.

Sixteen useless columns cost the MLP 0.10, and nobody else more than 0.03. With 1,800 rows, trees and FT-Transformer
learn to ignore them.
""",
        "blind": """
Half of them: exactly what a coin gets. All unknown people have the same token, and without a mask they look at the
same list, so they get the same answer. No training can help. Along the edges about 88% are right.

Two rules train nothing. The second is better than our blocks, 92%: one number per person, such that friends agree and
strangers differ as much as the graph allows. (It is the top eigenvector of the matrix of edges minus its mean; the
sign is the club, and the known say which.)
""",
        "hops": """
For our blocks it rises with each: 73.4%, then 85.6% with two, 88.2% with four and 89.5% with six. With one block, a
person hears friends only, and many have no known friend. Each further block lets news travel one step more.

Dashed are the two rules that train nothing: means of friends' means, 83%, and the top eigenvector, 92%, which no
network here reaches. Now compare the networks: they are nearly equal. A graph convolution with 4 layers and 3,330
parameters gets 89.6%, and with 6 a little less, 89.0%. Our blocks have ten times as many parameters; on this task,
learned weights gain nothing.
""",
        "rings": """
By nothing. Every node has the same token and two neighbors with the same tokens, so every weighted mean is the same,
in the first block and in all that follow. Training cannot change that, and graph convolutions are blind in the same
way. (The theory behind this is the Weisfeiler–Leman test.)
""",
        **SENSE_ANSWERS,
    }
)
