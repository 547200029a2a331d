"""The API below /api/v1: a module for each noun."""
