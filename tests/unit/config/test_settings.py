"""Settings from the environment: what is right is taken, what is wrong is named in one line."""

from __future__ import annotations

import pytest

from comfyui_agent.config.settings import SettingsError, load_settings


def test_without_anything_the_defaults_hold() -> None:
    settings = load_settings({})
    assert settings.retry_limit == 2
    assert settings.retry_backoff_seconds == (15.0, 45.0, 90.0)
    assert settings.comfyui.urls == ("http://127.0.0.1:8188",)
    assert settings.paths.database == "database/comfyui_agent.db"
    assert settings.lease_seconds == 30


def test_the_environment_overrides_by_path() -> None:
    settings = load_settings(
        {
            "E3_RETRY_LIMIT": "5",
            "E3_RETRY_BACKOFF_SECONDS": "1, 2.5",
            "E3_COMFYUI__SERVERS": "http://a:1,http://b:2",
            "E3_COMFYUI__TIMEOUT_SECONDS": "7",
            "E3_PATHS__DATABASE": "x.db",
            "PATH": "/bin",
            "E3_COMFYUI_DIR": "/somewhere",
        }
    )
    assert settings.retry_limit == 5
    assert settings.retry_backoff_seconds == (1.0, 2.5)
    assert settings.comfyui.urls == ("http://a:1", "http://b:2")
    assert settings.comfyui.timeout_seconds == 7
    assert settings.paths.database == "x.db"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("E3_RETRY_LIMIT", "many", "E3_RETRY_LIMIT='many': "),
        ("E3_RETRY_LIMIT", "-1", "greater than or equal to 0"),
        ("E3_LEASE_SECONDS", "0.1", "E3_LEASE_SECONDS='0.1': "),
        ("E3_RETRY_BACKOFF_SECONDS", "1,x", "E3_RETRY_BACKOFF_SECONDS"),
        ("E3_RETRY_BACKOFF_SECONDS", "nan", "E3_RETRY_BACKOFF_SECONDS"),
        ("E3_COMFYUI__TIMEOUT", "3", "E3_COMFYUI__TIMEOUT: there is no such setting"),
        ("E3_NONSENSE", "3", "E3_NONSENSE: there is no such setting"),
        ("E3_COMFYUI", "3", "E3_COMFYUI"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(name: str, value: str, says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({name: value})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
