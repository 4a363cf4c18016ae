"""The models of the course, one file a family, composed of the parts in `norms`, `feed_forward` and `blocks`."""
