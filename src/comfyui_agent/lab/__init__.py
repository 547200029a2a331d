"""Measuring, pressing and breaking, from outside."""
