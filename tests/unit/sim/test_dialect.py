"""Which version of ComfyUI brought what."""

from __future__ import annotations

import pytest

from comfyui_agent.sim.settings import IMITATED, NEWEST, Dialect

FIRST_VERSION = {
    "targeted_interrupt": "0.3.57",
    "create_time": "0.3.69",
    "jobs_api": "0.6.0",
    "jobs_cancelled_status": "0.8.0",
    "missing_node_type_error": "0.12.0",
    "dependency_cycle_error": "0.19.0",
    "cross_site_refused": "0.19.0",
    "cache_survives_other_prompts": "0.25.0",
    "prompt_id_must_be_uuid": "0.28.0",
    "jobs_cancel_api": "0.28.0",
    "cached_outputs_without_client": "0.30.0",
    "output_asset_ids": "0.38.0",
    "all_devices_listed": "0.38.0",
    "more_keys_in_definitions": "0.38.0",
}


def one_before(version: str) -> str:
    major, minor, patch = (int(part) for part in version.split("."))
    return f"{major}.{minor}.{patch - 1}" if patch else f"{major}.{minor - 1}.999"


def test_every_behaviour_has_a_first_version() -> None:
    assert set(FIRST_VERSION) == set(vars(Dialect(IMITATED))) - {"version"}


@pytest.mark.parametrize(("behaviour", "version"), FIRST_VERSION.items())
def test_a_behaviour_begins_with_its_version(behaviour: str, version: str) -> None:
    assert getattr(Dialect(version), behaviour)
    assert not getattr(Dialect(one_before(version)), behaviour)


def test_newest_has_everything_and_a_version_to_show() -> None:
    newest = Dialect("newest")
    assert newest.version == NEWEST
    assert all(getattr(newest, behaviour) for behaviour in FIRST_VERSION)


@pytest.mark.parametrize("version", ["", "7", "0.7", "v0.7.0", "0.7.0-rc1", "latest", "0.7.x", "0.7.0\n", "-1.0.0"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match="is not a ComfyUI version: give one such as"):
        Dialect(version)
