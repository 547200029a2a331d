"""Batches: sweeps, books and prompt folders become jobs here, and batches are read back."""
