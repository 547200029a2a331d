"""Many servers: which are up, how busy they are, which get work."""
