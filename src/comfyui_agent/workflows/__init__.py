"""Workflow files: what a file carries, and ComfyUI's UI format converted to its API format."""
