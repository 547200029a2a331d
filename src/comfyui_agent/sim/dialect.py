"""What differs between ComfyUI versions on the wire, as switches of the simulator."""

from __future__ import annotations

import re

NEWEST = "0.38.0"
IMITATED = "0.7.0"


class Dialect:
    """The behaviours of one version: `0.7.0`, any other `X.Y.Z`, or `newest`. ValueError for anything else."""

    def __init__(self, version: str) -> None:
        if version == "newest":
            version = NEWEST
        if not re.fullmatch(r"\d+\.\d+\.\d+", version):
            raise ValueError(f"{version!r} is not a ComfyUI version: give one such as {IMITATED}, or newest")
        number = tuple(int(part) for part in version.split("."))
        self.version = version
        self.targeted_interrupt = number >= (0, 3, 57)
        self.create_time = number >= (0, 3, 69)
        self.jobs_api = number >= (0, 6, 0)
        self.jobs_cancelled_status = number >= (0, 8, 0)
        self.missing_node_type_error = number >= (0, 12, 0)
        self.dependency_cycle_error = number >= (0, 19, 0)
        self.cross_site_refused = number >= (0, 19, 0)
        self.cache_survives_other_prompts = number >= (0, 25, 0)
        self.prompt_id_must_be_uuid = number >= (0, 28, 0)
        self.jobs_cancel_api = number >= (0, 28, 0)
        self.cached_outputs_without_client = number >= (0, 30, 0)
        self.output_asset_ids = number >= (0, 38, 0)
        self.all_devices_listed = number >= (0, 38, 0)
        self.more_keys_in_definitions = number >= (0, 38, 0)
