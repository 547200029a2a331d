"""ComfyUI processes on this machine that E3 starts and supervises, each in a slot of its own."""
