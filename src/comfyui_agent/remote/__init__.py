"""E3 for programs on other machines: `Client` and `AsyncClient` speak its HTTP API, safe against lost answers."""

from comfyui_agent.remote.client import AsyncClient, Client
from comfyui_agent.remote.errors import DamagedResult, IdTaken, NotReady, Refused, RemoteError, Unreachable
from comfyui_agent.remote.results import grid_of

__all__ = [
    "AsyncClient",
    "Client",
    "DamagedResult",
    "IdTaken",
    "NotReady",
    "Refused",
    "RemoteError",
    "Unreachable",
    "grid_of",
]
