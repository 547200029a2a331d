"""Which version of ComfyUI brought what."""

from __future__ import annotations

import pytest

from comfyui_agent.wire.dialect import IMITATED, Dialect

FIRST_VERSION = {
    "targeted_interrupt": "0.3.57",
    "create_time": "0.3.69",
    "jobs_api": "0.6.0",
    "jobs_cancelled_status": "0.9.0",
    "missing_node_type_error": "0.12.0",
    "node_replacements": "0.14.0",
    "jobs_show_texts": "0.16.0",
    "cross_site_refused": "0.19.0",
    "dependency_cycle_error": "0.20.0",
    "listed_files_name_their_folder": "0.20.0",
    "user_files_in_milliseconds": "0.21.0",
    "wrong_choices_as_written": "0.21.0",
    "prompt_id_must_be_uuid": "0.25.0",
    "usage_source_kept": "0.25.0",
    "jobs_cancel_api": "0.26.0",
    "active_content_downloaded": "0.28.0",
    "cached_outputs_without_client": "0.28.0",
    "model_extensions_listed": "0.28.0",
    "model_previews_bounded": "0.28.0",
    "user_files_are_downloads": "0.28.0",
    "jobs_count_previews": "0.32.0",
    "newer_definitions": "0.33.0",
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


def test_a_version_may_be_given_without_its_patch_level() -> None:
    assert Dialect("0.7").version == "0.7.0"
    assert vars(Dialect("0.33")) == vars(Dialect("0.33.0"))
    assert not Dialect("0.7").since("0.12")


@pytest.mark.parametrize("version", ["", "7", "v0.7.0", "0.7.0-rc1", "latest", "newest", "0.7.x", "0.7.0\n", "-1.0.0"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match="is not a ComfyUI version: give one such as"):
        Dialect(version)
