"""Where the time and the memory of one workflow go: cold and warm, node by node."""
