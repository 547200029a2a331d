"""ComfyUI's protocol in front of the store and the fleet: any client of ComfyUI can post to E3."""
