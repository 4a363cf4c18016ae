"""Answers to the predictions of lesson 06: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "six_texts": """
The greedy texts are dull. Only a few words ever appear, and sooner or later a text repeats itself, sometimes
within one sentence. The sampled texts are lively, and they **derail**: they soon stop making sense. Every step
offers hundreds of words that do not fit. Each of them is unlikely, but together they are common enough to spoil
many sentences.
""",
        "one_more_word": """
Without a cache the second takes more than ten times as long, since sixteen times as many words are read. With
one, it took 1.7 times as long, part of which may be noise: the work of one word is constant, except for the
attention, which now looks at sixteen times as many keys. (The timed cache is the package's, which reserves
memory ahead. Our `torch.cat` also copies all of it for every word.)
""",
        "words_left": """
Top-k keeps five words in either case, too few after *the*, and too many after *they look*, where about two are
fine. Top-p adapts: it keeps many words where the model is unsure, and few where it is sure. But its 100 after
*the* leave out many that can follow, too.
""",
        "surprise": """
The beam's text is by far the likeliest, and Shakespeare's about as *unlikely* as samples from the full softmax.
That is no paradox. A model whose probabilities are right on average, after its own words as well, expects as
much surprise as real text brings, and its own samples bring as much. (GPT-2's brought more in Table 1 of
Holtzman et al.: 3.1 nats per token, against 2.5 for human text, with top-p 0.95 nearest to it.)

Think of a coin that shows heads with probability 0.6, tossed 100 times. The likeliest single outcome is 100
heads, but nobody would take it for a typical one. Typical outcomes have about 60 heads. Each of them is far less
likely, but there are very many of them. Greedy decoding and beams look for the 100 heads; sampling returns
something typical.
""",
        "beam_of_four": """
In roughly half of them, probably because this model is often unsure. The examples are chosen: those in which
only the beam is right, which means identical to the reference, come first. But compare the two counts above.
Where they are equal, the beam has spoiled as many right texts as it has repaired. (On 240 sentences, in another
run, greedy decoding got 57 right and the beam 63, which is too close to call.)

Where the beam repairs a text, it can be the toy example's effect: greedy decoding takes a likely word whose
continuations are less likely. *Going further* draws one such search.
""",
    }
)
