"""Comfy API v2, ComfyUI's contract for programs, over the whole fleet. A job there is a job here."""
