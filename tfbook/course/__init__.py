"""What the course itself needs: claims, exercises, experiments, invariants, probes, metrics, the machine check."""
