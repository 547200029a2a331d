"""Measured prompts, and what they are measured with."""
