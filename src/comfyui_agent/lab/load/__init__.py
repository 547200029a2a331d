"""Load tests: press on servers as planned, measure every prompt, and say what it comes to."""
