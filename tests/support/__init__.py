"""What several test folders share: servers to test against, and prompts to send."""
