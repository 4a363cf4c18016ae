"""Answers to the predictions of lesson 13: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "twice_the_side": """
Sixteen times as much: if all weights are stored, memory grows with the fourth power of the side. (It needn't
store them, as lesson 15 shows, but the number of operations grows so in any case.) Twice the side means four
times the tokens, and four times the tokens mean 16 times the pairs. An image of 224 × 224 has 50,176 pixels,
which make 2.5 billion pairs. The paper's ViT-Base computes a weight for every pair 144 times per image, in 12
heads of 12 layers.

The blue line starts flatter because the vectors of a few patches take more memory than the weights between them.
""",
        "vit": """
On Fashion-MNIST, the ViT ends about four points above the linear classifier, or nearly 400 more test images
right. But it is level with the MLP, which has no attention (in one run of each). So a nonlinear model of this
size gets that lead without attention.
""",
        "neighbors": """
Above and below, yes: the mean cosine of vertical neighbors is about 0.56. Left and right, hardly: 0.16 to 0.22.
The two *ends* of a row, six patches apart, are more alike than that (0.42 to 0.50).

So these positions are not a map of the grid, only pieces of one. We did not test why. A guess: clothes are
upright and symmetric, so the patches of a column, and those at both edges, tend to show the same things. The
paper's model recovers rows and columns much better.
""",
        "four_orders": """
Ablation does, whose maps often disagree with rollout's. Rollout beats chance: with four patches hidden, 64% of
the answers are still right, and 77% with four random ones. But its mean map, the same patches in every image,
does about as much damage: in this run more with six hidden (41% right, and 47% by rollout), less with ten or
twelve (22% right with twelve, and 13% by rollout, the largest gap).

With two other seeds, rollout did more damage than its mean map at every count, so seeds decide. Rollout has
found places that matter in this data set. How much more it says about the single image, one run can't show.

Ablation is *allowed* to ask the model the very question it is judged by, at one run per patch, so it wins nearly
by construction. Rollout is a hint, and it needs a control.
""",
        "contest": """
With 1,000 images the MLP is best, and even the linear classifier is ahead of the CNN and the ViT on average.
With 30,000 the CNN leads the ViT by about 2.6 points, and the MLP is ahead of it, too. So the ViT does not catch
up here. (Each run took 500 steps: 32 passes over 1,000 images, but one over 30,000. So the number of images and
how often each is seen change together.)

On all 60,000 images, after 3,000 steps, the CNN wins by about two points, with *half* of the ViT's operations
per image. The learning rate does not decide this: in the search, the CNN led at each of the six. The ViT is four
to five points above the linear classifier, but only 0.6 above the MLP on average: a small lead, though the ViT
has it with each of the five seeds. The MLP needs a seventeenth of the operations.

So on small gray images, in short runs, this ViT wasn't worth its cost. (No two of these models differ in
attention alone.) And half the work is a matter of the patches: with 14 × 14 pixels, the ViT does less work than
the CNN, and one such run reached 88.8%. Which part of the CNN makes the difference, small filters, batch norm,
or eight layers instead of two, the contest does not say.
""",
        "new_orders": """
One fixed order costs the ViT nothing on average: its changes are at most about half a point, up or down. That
had to be so. Its positions are learned *names* of places, and they start random, all from one distribution, so a
fixed order hands out the same names differently. The linear classifier has a weight for each pixel and isn't
hurt either. The CNN loses with every seed, 0.2 to 1.1 points, presumably because it combines pixels on both
sides of a seam that no longer belong together.

With a new order per image, the linear classifier drops from 83% to 49%, and the CNN from 86% to 63%. The ViT
drops from 82% to 77%.

Without positions, the ViT loses less, 2.5 to 3.1 points. It can't tell one order from another, so an image is a
*bag* of patches to it, and the bag alone is good for 79%. Knowing the places adds the rest. The shuffled ViT
does worse than the bag with each seed, perhaps because positions that mean nothing are noise.
""",
        "patch_size": """
The largest patches are the most accurate, and the fastest as well. Halving the side of a patch means four times
the tokens, and here that took more time and gave *less* accuracy. But these runs are very short. Five tokens are
easier to learn from than 50, and we did not test whether small patches pay off later. In the paper they do, for
the same number of images seen: its models with patches of 16 × 16 beat those of the same size with 32 × 32, at
about four times the work. There, the size of a patch trades accuracy against time; here, after 300 steps, we saw
no trade.
""",
        "enlarged": """
Interpolated positions lose least: 58% to 66% right on the larger grids, against 24% to 34% for the others. But
that is far below the 89% of the trained grid, and below what the linear classifier gets on the original images.
A patch now shows a smaller, blurrier part of a thing than any patch the model was trained on. That is probably
why ViTs are **fine-tuned** for some steps at the new resolution, starting from interpolated positions.
""",
    }
)
