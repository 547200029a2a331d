"""What makes one prompt into a batch, apart from ComfyUI itself."""
