"""Claims of lesson 19 on sound and on images with texts, to stand among the lesson's."""

from __future__ import annotations

from tfbook.course.claims import Bound

SENSE_BOUNDS = {
    6: Bound("Your model hears the digits of speakers it never met (right answers)", ">=", 0.95, "measured here"),
    7: Bound(
        "Strips with attention and the best linear model on spectra are level (mean of seeds minus the linear model)",
        "<=",
        0.02,
        "stored, three seeds, 40 held-out speakers",
    ),
    8: Bound(
        "CLIP hardly tells who is where (true caption against places swapped, best seed)",
        "<=",
        0.65,
        "Yuksekgonul et al. (2023); stored",
    ),
    9: Bound(
        "Your model answers questions about scenes it has not seen (mean over the forms)",
        ">=",
        0.8,
        "measured here",
    ),
}
FURTHER_SENSE_BOUNDS = {
    13: Bound(
        "CLIP finds an image's caption and a caption's image among 100 (the worse direction, worst seed)",
        ">=",
        0.9,
        "stored, on held-out scenes",
    ),
    14: Bound(
        "A single stream and towers with a CNN tell who is where (true caption against swapped ones, the worst of all)",
        ">=",
        0.95,
        "stored, three seeds, on small scenes of two objects",
    ),
}
