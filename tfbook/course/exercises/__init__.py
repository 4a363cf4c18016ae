"""Exercises with checks that name the mistake, one module a lesson.

`from tfbook.course.exercises import bahdanau_attention as ex`
"""
