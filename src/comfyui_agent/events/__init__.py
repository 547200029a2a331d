"""What happened, told to subscribers and written to the metrics log."""
