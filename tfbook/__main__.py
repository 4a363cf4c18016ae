"""`python -m tfbook`: the map of the course with what is solved on this machine."""

from tfbook.course import progress

if __name__ == "__main__":
    progress.print_course()
