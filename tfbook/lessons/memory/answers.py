"""Answers to the predictions of lesson 18: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "rules": """
TODO
""",
        "order": """
TODO
""",
        "one_hop": """
TODO
""",
        "parts": """
TODO
""",
    }
)
