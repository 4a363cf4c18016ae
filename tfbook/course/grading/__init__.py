"""Grading what students hand in: their answers run in a locked room, and the verdicts are given outside of it.

`handed_in` reads the notebooks, `room` is where an answer runs, `workshop` is the process that opens such rooms,
`verdicts` judges what comes out of them, and `tables` writes the grades.
"""
