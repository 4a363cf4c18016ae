"""Answers to the predictions of lesson 17: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "fixed": r"""
For the first words nearly always, from 24 words on at most two times in three, and beyond 48 words at most three
times in ten, in all three seeds. A word that lies $k$ words back is worth $a^k$. What this training found is a
compromise: channels with a small $a$ drop the name within a few words, and channels with a large $a$ keep it, but
keep the holder before it nearly as well. (A limit of our training: set by hand, fixed decays *can* hold the lantern, if
nothing disturbs them. See Going further.)
""",
        "gated": r"""
Nothing is lost: accuracy stays at 1 up to 95 words, although training never showed a stream longer than 64.
The picture shows how. At a name the decays fall to about a third on average, so the new holder outweighs the
old one; at a word about the weather they stay close to 1 in most channels, so most of the state passes it unchanged.
Distance counts little, because the weather hardly counts as time.
""",
        "full": r"""
About 15 facts with keys of 16 numbers, and about 30 with keys of 32: a little fewer than a key has numbers, in all
seeds. Random keys of $d$ numbers overlap by about $1 / \sqrt d$, up or down. So what a query reads of $n - 1$ other
facts grows like $\sqrt{n / d}$, while its own answer stays at 1. Nothing breaks at once: the state forgets a little of
everything, the more the fuller it is.

This rests on random keys, and on a state that only adds.
""",
        "chosen": r"""
At a name, or at one of the three words after it: the filter over four words shows the name to all four. Which of them
takes the long step differs from seed to seed, but once the name has left the filter, all steps are short. So near a
name the state is cleared and written, and the weather passes, as with Section 2's gates.

With $W_\Delta = 0$ the reader is wrong in three to five of ten cases beyond 48 words, in all three seeds worse than
any Mamba with its own steps. $B$ and $C$ are not needed here: one fact needs no address. (Section 2's gates, with no
filter in front, did better than Mamba on this task: all right, in all three seeds.)
""",
        "selection": r"""
Little for $\Delta$, much for $B$ and $C$. In the picture each channel has a step of its own, short or long, but the
rows look alike: "the" lasts about as long as "Rosa". $B$ and $C$ change from word to word.

But a part that is held still in a finished model breaks what was trained around it. So the table's last column
trains Mambas that never had it: $W_\Delta = 0$, or one learned $B$ and $C$ for all words. The surprise: in seed 1,
0.88 becomes 0.89 without the first, 0.90 without the second, and 0.91 without both (whole ones of two seeds are
0.88 and 0.90, so don't rank these).

A Mamba trained with $B$ and $C$ relies on them, and hardly needs them: here fixed decays, the convolution over four
words, and the gate $g$ do nearly as well. So $\Delta$ *can* be a gate: the lantern asks for one, these short stories
hardly do.
""",
        "recall": r"""
After 500 batches, the matrix of gated linear attention: with 256 numbers (four heads, keys of 8) it answers everything,
with 64 (sixteen heads, keys of only two numbers) about six in ten questions. (With 1,024 numbers in one head one seed
of two got stuck. A larger state is not always easier to train.)
The wide LSTM gets nearly two thirds right. A window is right while the fact lies inside it, and guesses otherwise.

The surprise is at the bottom: minGRU, S4D, and the narrow Mamba are no better than a reader that only counts. Size
can't be the reason: minGRU has 256 numbers, as many as the matrix that answers everything, and the wide Mamba has more.
""",
        "asked": r"""
Your line takes the stored runs from one in four to nineteen in twenty and more, in all three seeds. A *vector* of
256 numbers now recalls nearly what the matrix of 256 does, so the numbers could hold the facts all along.

Was a product missing? No: a ReLU of the *sum*, with as many parameters, is right nine times in ten, and a SiLU of it
99 times in a hundred. What helped all three is a place **beside the recurrence** where state and question meet
nonlinearly, before 256 numbers are squeezed into 32. A plain sum is no such place:
$W_O (h + W_Q x) = W_O h + (W_O W_Q) x$. Nor is a ReLU of the state alone.

Inside the recurrence the two do meet: at the question's word, minGRU's gate multiplies the old state. But what it
clears there is gone for later questions, too. None of our runs learned to answer that way, which doesn't prove that
none could.
""",
        "costs": """
No longer at all for the states: the ratio is 1.0. For attention it is about three times as long, since every new
word reads all keys and values so far. Up to about 2,048 words our Mamba is the *slower* of the two: its step in
Python costs more than reading such a short cache. (Not sixteen times: at these lengths much of a step is feed-forward
layers and Python's own time.) The bytes say it more clearly:
attention's cache grows by 1.5 kB with each word, while a state stays what it was.
""",
        "keeps_a_tune": r"""
The rhythm goes first. The dilated network plucks most notes on time and follows the rule of neighbors in more
than half of the cases; the network that sees 10 samples plucks at random, far too often, and almost no note
lasts a tenth of a second. Its pitch is *not* all gone: most of its short notes repeat a string's period,
although it has never seen a whole period at once. Ten exact samples tell much about where in a string's
waveform they come from, and each new sample carries that on. Time since the last pluck, by contrast, is not
written in ten samples.

Linear prediction and the string's own rule know no plucks, so one note rings on until it is gone. The string's
rule is a strong rival in bits, and it knows the six periods in advance; still it pays for each pluck, which it
cannot foresee.

Even the dilated network is far from perfect: 512 samples hold one note and a quarter, and 400 batches are few.
What we changed is the dilations alone; parameters, batches, and learning rates are the same, and the rates were
not tuned for either.
""",
        "blind_spot": r"""
No. The red triangle on the right never fills, however many layers there are: each layer of 3 × 3 can go at most
one column to the right per row upward, so what lies right of that diagonal, up to the edge, is never reached.
Ten of 82 earlier pixels are missing here at nine layers, and a test finds the same ten at fourteen. The [gated
PixelCNN](https://arxiv.org/abs/1606.05328) cures it with two stacks: one for all rows above, which needs no
mask on its right side, and one for the pixel's own row.
""",
    }
)
