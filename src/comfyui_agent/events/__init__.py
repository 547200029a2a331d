"""Events: the subscribers of this process, and the metrics log."""
