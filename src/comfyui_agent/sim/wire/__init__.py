"""ComfyUI's HTTP routes and websocket, in front of any engine that offers `comfyui_agent.sim.ports.Engine`."""
