"""Settings: what can be configured, where it comes from, and what is right."""
