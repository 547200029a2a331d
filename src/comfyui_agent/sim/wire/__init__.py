"""ComfyUI's HTTP routes and websocket."""
