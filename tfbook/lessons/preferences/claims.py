"""Claims of lesson 12: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims(
    "preferences",
    {
        1: Bound(
            "With 64 better stories, the reward model orders nine in ten new pairs (liked, not generous) rightly",
            ">=",
            0.9,
            "Stored result, preferences.accuracy, smallest of three runs",
        ),
        2: Bound(
            "DPO raises the share of generous stories by at least 30 points",
            ">=",
            0.3,
            "Stored result, preferences.methods, smallest of three runs, 160 stories each",
        ),
        3: Bound(
            "Meanwhile, of its generous stories, the share that is consistent falls by at most 10 points",
            "<=",
            0.1,
            "Stored result, preferences.methods, mean of three runs",
        ),
        4: Bound(
            "It stays within a few nats of the storyteller: KL of a story",
            "<=",
            5,
            "Stored result, preferences.methods, largest of three runs",
            " nats",
        ),
        5: Bound(
            "Without a KL penalty, PPO raises the reward model's score (standard deviations)",
            ">=",
            0.7,
            "Stored result, preferences.ppo, mean of three runs at their end minus the storyteller",
        ),
        6: Bound(
            "… while fewer of its stories are consistent (difference of shares)",
            ">=",
            0.3,
            "Stored result, preferences.ppo, the storyteller minus the mean of three runs at their end",
        ),
        7: Bound(
            "With β = 0.1, the reader likes more of the stories in the end than without a penalty (difference)",
            ">=",
            0.1,
            "Stored result, preferences.ppo, means of three runs at their end",
        ),
        8: Bound(
            "At equal compute, the reader likes about as many of DPO's stories as of PPO's (difference of shares)",
            "<=",
            0.1,
            "Stored results, preferences.methods and preferences.ppo, means of three runs",
        ),
        9: Bound(
            "With no more KL than DPO, best of n has more generous stories (difference of shares)",
            ">=",
            0.1,
            "Stored result, preferences.methods, best of n on new stories",
        ),
    },
)
