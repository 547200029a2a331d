"""What differs between ComfyUI versions on the wire, as switches of the simulator."""

from __future__ import annotations

import re
from dataclasses import dataclass

NEWEST = "0.38.0"
IMITATED = "0.7.0"


@dataclass(frozen=True)
class Dialect:
    """The behaviours of one version. Fields are named after what a client sees."""

    version: str
    targeted_interrupt: bool
    jobs_api: bool
    create_time: bool
    jobs_cancelled_status: bool
    missing_node_type_error: bool
    dependency_cycle_error: bool
    cross_site_refused: bool
    cache_survives_other_prompts: bool
    prompt_id_must_be_uuid: bool
    jobs_cancel_api: bool
    cached_outputs_without_client: bool
    output_asset_ids: bool
    all_devices_listed: bool
    more_keys_in_definitions: bool

    @classmethod
    def of(cls, version: str) -> Dialect:
        """The dialect of `0.7.0`, of any other `X.Y.Z`, or of `newest`."""
        if version == "newest":
            version = NEWEST
        if not re.fullmatch(r"\d+\.\d+\.\d+", version):
            raise ValueError(f"{version!r} is not a ComfyUI version: give one such as {IMITATED}, or newest")
        number = tuple(int(part) for part in version.split("."))
        return cls(
            version=version,
            targeted_interrupt=number >= (0, 3, 57),
            jobs_api=number >= (0, 6, 0),
            create_time=number >= (0, 3, 69),
            jobs_cancelled_status=number >= (0, 8, 0),
            missing_node_type_error=number >= (0, 12, 0),
            dependency_cycle_error=number >= (0, 19, 0),
            cross_site_refused=number >= (0, 19, 0),
            cache_survives_other_prompts=number >= (0, 25, 0),
            prompt_id_must_be_uuid=number >= (0, 28, 0),
            jobs_cancel_api=number >= (0, 28, 0),
            cached_outputs_without_client=number >= (0, 30, 0),
            output_asset_ids=number >= (0, 38, 0),
            all_devices_listed=number >= (0, 38, 0),
            more_keys_in_definitions=number >= (0, 38, 0),
        )
