"""One model on many machines: pretended ones in one process, where every message is counted, and real ones."""
