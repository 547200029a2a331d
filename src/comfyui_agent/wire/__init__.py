"""ComfyUI's HTTP and websocket protocol from the server's side, in front of any `Backend`."""
