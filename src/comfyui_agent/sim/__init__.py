"""A faithful ComfyUI without a GPU."""
