"""Answers to the predictions of lesson 17: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "fixed": r"""
For the first words nearly always, from 24 words on no better than two times in three, and beyond 48 words no better
than chance, in all three seeds. More training does not change the reason: a word that lies $k$ words back is worth
$a^k$. A channel with a small $a$ drops it within a few words. A channel with a large $a$ keeps it, but keeps the
holder before it nearly as well, and cannot say which of the two came later. There is no $a$ that is right for
both, because the rain and a name are treated alike.
""",
        "gated": r"""
Nothing is lost: right answers stay at one, up to 95 words, although training never showed a stream longer than 64.
The picture shows how. At a name the decays fall toward 0, so the old holder is overwritten at once; at a word about
the weather they stay close to 1, so nothing happens to the state. The distance no longer matters, because weather
no longer counts as time.
""",
        "recall": r"""
Attention answers everything at any number of facts, since its cache grows with them. A window is right while the
fact lies inside it, and guesses otherwise. The vectors (minGRU, LSTM, S4D) fall off early: they hold a few facts, in
numbers that would be enough for all of them. The matrix of gated linear attention does best among the states,
because a question reads it the way attention reads its keys: with a product.

Two things follow. *How* a state is read matters as much as how large it is, and a fixed state that does well at
16 facts still has an end, which the smallest matrix shows.
""",
        "costs": """
No longer at all for the states: the ratio is 1.0. For attention it is about three times as long, since every new
word reads all keys and values so far. The bytes say it more clearly: attention's cache grows by 1.5 kB with each
word, while a state stays what it was after the first word.
""",
    }
)
