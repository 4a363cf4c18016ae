"""Shared parts of the course: claims, exercises, experiments, invariants, probes, metrics, the machine check."""
