"""Claims of lesson 19: each statement, its bound and its source."""

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims("modalities", {1: Bound("A number between 0 and 1 is less than 1", "<=", 1, "Say here which paper")})
