"""Measured prompts, graphics cards, machines, and statistics of many values."""
