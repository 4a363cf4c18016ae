"""`python -m tfbook.course` is `python -m tfbook`."""

from tfbook.__main__ import course_command

if __name__ == "__main__":
    course_command()
