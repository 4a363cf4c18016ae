"""Claims of lesson 13: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims(
    "vit_patches",
    {
        1: Bound(
            "On the images at hand, the ViT makes fewer errors than the linear classifier: the share that is gone",
            ">=",
            10,
            "Measured here",
            "%",
        ),
        2: Bound(
            "Positions of vertical neighbors are alike: mean cosine, minimum over three seeds",
            ">=",
            0.4,
            "Stored result, vit_patches.grids; Dosovitskiy et al. (2021), Figure 7",
        ),
        3: Bound(
            "Hiding four patches by rollout costs more accuracy than four at random",
            ">=",
            3,
            "Measured here; Abnar and Zuidema (2020)",
            " points",
        ),
        4: Bound(
            "After 500 steps on 30,000 images, the CNN leads the ViT: minimum over three seeds",
            ">=",
            1,
            "Stored result, vit_patches.growth",
            " points",
        ),
        5: Bound(
            "After 3,000 steps on 60,000 images, the CNN leads a ViT with no fewer parameters: minimum over five seeds",
            ">=",
            1,
            "Stored result, vit_patches.contest; Dosovitskiy et al. (2021), Section 4.3",
            " points",
        ),
        6: Bound(
            "After 3,000 steps on 60,000 images, the ViT leads the linear classifier: minimum over five seeds",
            ">=",
            3,
            "Stored result, vit_patches.contest",
            " points",
        ),
        7: Bound(
            "One fixed order hardly changes what a ViT learns: largest change over four seeds",
            "<=",
            1.5,
            "Stored result, vit_patches.shuffles",
            " points",
        ),
        8: Bound(
            "A new order per image costs the CNN more than the ViT: minimum over four seeds",
            ">=",
            10,
            "Stored result, vit_patches.shuffles",
            " points",
        ),
        9: Bound(
            "After 3,000 steps, a ViT leads one that has no positions: minimum over three seeds",
            ">=",
            1,
            "Stored results, vit_patches.contest and bag_contest",
            " points",
        ),
        10: Bound(
            "On a grid of 6 × 6, interpolated positions beat a table stretched as one line, and its mean",
            ">=",
            5,
            "Measured here; Dosovitskiy et al. (2021), Section 3.2",
            " points",
        ),
        11: Bound(
            "Two files of weights of the same ResNet-50 differ in ImageNet accuracy",
            ">=",
            4.5,
            "torchvision's metadata, measured by its authors",
            " points",
        ),
    },
)
