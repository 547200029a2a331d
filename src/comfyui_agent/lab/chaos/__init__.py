"""Fault injection: something is broken on purpose in front of an agent, and what it does is judged."""
