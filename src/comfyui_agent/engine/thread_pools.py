"""The threads of the agent. What people ask for over HTTP has its own: a result never waits behind a request."""

from __future__ import annotations

from comfyui_agent.pools import Pool

PUBLISHING = Pool("e3-publish", 4)
"""Publishing results, and other work on their files."""
RECORDING = Pool("e3-record", 2)
"""The metrics log and the live file."""
INTAKE = Pool("e3-intake", 4)
"""Job files and prompts."""
