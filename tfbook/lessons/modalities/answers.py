"""Answers to the predictions of lesson 19."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "runs": "One sentence on what happened, and why.",
        "change": "One sentence on what changed, and why.",
        "scale": "One sentence on what was measured, and why.",
    }
)
