"""Job files: read, checked, taken in, put away."""
