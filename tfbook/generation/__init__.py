"""From a trained model to text: greedy and beam search, sampling, models frozen for speed."""
