"""Claims of lesson 17: each statement, its bound and its source."""

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims("state_spaces", {1: Bound("A number between 0 and 1 is less than 1", "<=", 1, "Say here which paper")})
