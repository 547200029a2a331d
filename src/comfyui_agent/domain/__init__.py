"""What the work is about, without any input or output."""
