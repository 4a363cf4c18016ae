"""Exercises with checks that name the mistake: `from tfbook.course.exercises import bahdanau_attention as ex`, one module a lesson."""
