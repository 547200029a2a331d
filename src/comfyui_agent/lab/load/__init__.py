"""Load tests: send prompts as planned, measure each one, judge and compare the result."""
