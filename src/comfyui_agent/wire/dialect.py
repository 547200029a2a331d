"""What tells one ComfyUI version from another on the wire."""

from __future__ import annotations

import re

IMITATED = "0.33.0"


class Dialect:
    """What one ComfyUI version does on the wire: `0.33`, `0.7` or any other, with or without a patch level.

    0.7.0 and 0.33.0 were measured; the versions between them follow the history of ComfyUI's releases. ValueError for
    what is no version.
    """

    def __init__(self, version: str) -> None:
        if not re.fullmatch(r"\d+\.\d+(\.\d+)?", version):
            raise ValueError(f"{version!r} is not a ComfyUI version: give one such as 0.33 or 0.7")
        self.version = version if version.count(".") > 1 else f"{version}.0"
        self.targeted_interrupt = self.since("0.3.57")
        self.create_time = self.since("0.3.69")
        self.jobs_api = self.since("0.6")
        self.jobs_cancelled_status = self.since("0.9")
        self.missing_node_type_error = self.since("0.12")
        self.node_replacements = self.since("0.14")
        self.jobs_show_texts = self.since("0.16")
        self.cross_site_refused = self.since("0.19")
        self.dependency_cycle_error = self.since("0.20")
        self.listed_files_name_their_folder = self.since("0.20")
        self.user_files_in_milliseconds = self.since("0.21")
        self.wrong_choices_as_written = self.since("0.21")
        self.prompt_id_must_be_uuid = self.since("0.25")
        self.usage_source_kept = self.since("0.25")
        self.jobs_cancel_api = self.since("0.26")
        self.active_content_downloaded = self.since("0.28")
        self.cached_outputs_without_client = self.since("0.28")
        self.model_extensions_listed = self.since("0.28")
        self.model_previews_bounded = self.since("0.28")
        self.user_files_are_downloads = self.since("0.28")
        self.jobs_count_previews = self.since("0.32")
        self.newer_definitions = self.since("0.33")

    def since(self, version: str) -> bool:
        """Whether this is that version or a later one."""
        return _number(self.version) >= _number(version)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
