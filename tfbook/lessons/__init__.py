"""The lessons, one folder each, named by its slug: exercises, study, figures and claims."""
