"""E3, the ComfyUI Agent."""

__version__ = "0.1.0"
