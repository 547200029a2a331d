"""The kinds of reports."""

from __future__ import annotations

from comfyui_agent.domain.text_enum import TextEnum


class ReportKind(TextEnum):
    """What was done to the servers, as reports write it under `environment.kind`."""

    LOAD = "loadtest"
    CHAOS = "chaos"
    PROFILE = "profile"

    @property
    def label(self) -> str:
        """The kind in the words of the web page."""
        return {ReportKind.LOAD: "Load test", ReportKind.CHAOS: "Chaos", ReportKind.PROFILE: "Profile"}[self]
