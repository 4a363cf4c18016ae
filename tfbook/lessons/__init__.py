"""The lessons: a folder each, named by its slug, with its exercises, study, figures and claims."""
