"""One ComfyUI server, spoken to so that it cannot fool us."""
