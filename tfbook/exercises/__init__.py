"""Exercises with checks that name the mistake: `from tfbook.exercises import lesson01 as ex`, one module a lesson."""
