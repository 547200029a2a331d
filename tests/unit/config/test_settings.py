"""Settings from file and environment: what is right is taken, what is wrong is named in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyui_agent.config.loader import load_workspace
from comfyui_agent.config.settings import Gateway, Settings
from comfyui_agent.config.validation import Complaints


def settings_from(folder: Path, environment: dict[str, str]) -> Settings:
    return load_workspace(folder, environment).settings


def test_without_anything_the_defaults_hold(tmp_path: Path) -> None:
    settings = settings_from(tmp_path, {})
    assert settings.default_priority == 50
    assert settings.retry_limit == 2
    assert settings.retry_backoff_seconds == (15.0, 45.0, 90.0)
    assert settings.comfyui.urls == ("http://127.0.0.1:8188",)
    assert settings.paths.database == "database/comfyui_agent.db"
    assert settings.lease_seconds == 30
    assert (settings.ui.host, settings.ui.port, settings.ui.previews) == ("127.0.0.1", 8190, "watched")
    assert settings.gateway == Gateway(port=None, host="127.0.0.1", editor=None)


def test_the_environment_overrides_by_path(tmp_path: Path) -> None:
    settings = settings_from(
        tmp_path,
        {
            "E3_RETRY_LIMIT": "5",
            "E3_RETRY_BACKOFF_SECONDS": "1, 2.5",
            "E3_COMFYUI__SERVERS": "http://a:1,http://b:2",
            "E3_COMFYUI__TIMEOUT_SECONDS": "7",
            "E3_PATHS__DATABASE": "x.db",
            "E3_UI__PREVIEWS": "false",
            "E3_GATEWAY__PORT": "8187",
            "E3_GATEWAY__EDITOR": "gpu1:8188",
            "PATH": "/bin",
            "E3_COMFYUI_DIR": "/somewhere",
        },
    )
    assert settings.retry_limit == 5
    assert settings.retry_backoff_seconds == (1.0, 2.5)
    assert settings.comfyui.urls == ("http://a:1", "http://b:2")
    assert settings.comfyui.timeout_seconds == 7
    assert settings.paths.database == "x.db"
    assert settings.ui.previews == "never"
    assert settings.gateway == Gateway(port=8187, editor="gpu1:8188")


def test_files_from_before_say_whether_previews_are_asked_for(tmp_path: Path) -> None:
    for written, means in [(True, "always"), (False, "never"), ("watched", "watched"), ("always", "always")]:
        assert Settings.model_validate({"ui": {"previews": written}}).ui.previews == means
    assert settings_from(tmp_path, {"E3_UI__PREVIEWS": "true"}).ui.previews == "always"


def test_a_list_in_the_environment_may_be_written_as_its_own_remedy_says(tmp_path: Path) -> None:
    settings = settings_from(
        tmp_path,
        {
            "E3_RETRY_BACKOFF_SECONDS": "[15, 45, 90]",
            "E3_COMFYUI__SERVERS": '["http://a:1", "http://b:2"]',
            "E3_PATHS__INPUTS": "[/mnt/pictures, /mnt/films]",
        },
    )
    assert settings.retry_backoff_seconds == (15.0, 45.0, 90.0)
    assert settings.comfyui.urls == ("http://a:1", "http://b:2")
    assert settings.paths.inputs == ("/mnt/pictures", "/mnt/films")
    with pytest.raises(Complaints, match=r"write seconds, such as \[15, 45, 90\]"):
        settings_from(tmp_path, {"E3_RETRY_BACKOFF_SECONDS": "[15, 45"})


def test_what_is_wrong_is_named_in_one_line(tmp_path: Path) -> None:
    for name, value, says in [
        ("E3_RETRY_LIMIT", "many", "E3_RETRY_LIMIT: retry_limit: 'many' cannot be used: write a whole number from 0"),
        ("E3_RETRY_LIMIT", "-1", "E3_RETRY_LIMIT: retry_limit: '-1' cannot be used: write a whole number from 0"),
        ("E3_LEASE_SECONDS", "0.1", "E3_LEASE_SECONDS: lease_seconds: '0.1' cannot be used: write seconds from 2"),
        ("E3_RETRY_BACKOFF_SECONDS", "1,x", "E3_RETRY_BACKOFF_SECONDS: retry_backoff_seconds"),
        ("E3_RETRY_BACKOFF_SECONDS", "nan", "E3_RETRY_BACKOFF_SECONDS: retry_backoff_seconds"),
        ("E3_COMFYUI__TIMEOUT", "3", "no such key; did you mean timeout_seconds?"),
        ("E3_NONSENSE", "3", "E3_NONSENSE: nonsense: there is no such key"),
        ("E3_COMFYUI", "3", "E3_COMFYUI: comfyui: '3' cannot be used: write a section"),
        ("E3_UI__PREVIEWS", "sometimes", "ui.previews: 'sometimes' cannot be used: write always, watched or never"),
        ("E3_GATEWAY__PORT", "0", "gateway.port: '0' cannot be used: write a port from 1 to 65535, such as 8187"),
        ("E3_GATEWAY__PORT", "yes", "gateway.port: 'yes' cannot be used: write a port from 1 to 65535, such as 8187"),
        ("E3_GATEWAY__EDITOR", "ftp://gpu1", "gateway.editor: an editor's address begins with http:// or https://"),
        ("E3_GATEWAY__EDITORS", "gpu1", "gateway.editors: there is no such key; did you mean editor?"),
        ("COMFY_MAX_RETRIES", "-3", "COMFY_MAX_RETRIES: books.retry_limit: '-3' cannot be used"),
    ]:
        with pytest.raises(Complaints) as caught:
            settings_from(tmp_path, {name: value})
        assert says in str(caught.value), (name, value, says)
        assert "\n" not in str(caught.value), (name, value, says)


def test_processes_to_launch_may_stand_in_the_file_or_in_the_environment(tmp_path: Path) -> None:
    sections = "[{directory: /opt/ComfyUI, gpus: [0, 1], per_gpu: auto, environment: {CUDA_MODULE_LOADING: 1}}]"
    (tmp_path / "config").mkdir()
    (tmp_path / "config/global_config.yaml").write_text(f"comfyui:\n  launch: {sections}\n")
    (section,) = settings_from(tmp_path, {}).comfyui.launch
    assert (section.gpus, section.per_gpu, section.port_from) == ((0, 1), "auto", 8188)
    assert section.environment == {"CUDA_MODULE_LOADING": "1"}
    comfyui = settings_from(tmp_path, {"E3_COMFYUI__LAUNCH": '[{"directory": "x", "gpus": "cpu"}]'}).comfyui
    assert (comfyui.launch[0].gpus, comfyui.urls) == ("cpu", ())
    named = settings_from(tmp_path, {"E3_COMFYUI__SERVERS": "http://gpu1:8188"}).comfyui
    assert (len(named.launch), named.urls) == (1, ("http://gpu1:8188",))


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ("[{}]", "launch.0.directory: is missing: write the folder of a ComfyUI, such as /opt/ComfyUI"),
        ("[{directory: x, gpu: 1}]", "launch.0.gpu: there is no such key; did you mean gpus?"),
        ("[{directory: x, gpus: []}]", "launch.0.gpus: [] cannot be used: write all, cpu, or a list of cards"),
        ("[{directory: x, per_gpu: 0}]", "launch.0.per_gpu: 0 cannot be used: write a whole number from 1 to 64"),
        ("[{directory: x, port_from: 80}]", "launch.0.port_from: 80 cannot be used: write a port from 1024"),
        ("/opt/ComfyUI", "launch.0: '/opt/ComfyUI' cannot be used: write a list of sections, such as [{directory"),
    ],
)
def test_a_section_of_launch_that_is_wrong_is_named(tmp_path: Path, sections: str, says: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/global_config.yaml").write_text(f"comfyui:\n  launch: {sections}\n")
    with pytest.raises(Complaints) as caught:
        settings_from(tmp_path, {})
    assert f"config/global_config.yaml:2: comfyui.{says}" in str(caught.value)
    (tmp_path / "config/global_config.yaml").write_text("")
    with pytest.raises(Complaints, match=r"E3_COMFYUI__LAUNCH: comfyui.launch"):
        settings_from(tmp_path, {"E3_COMFYUI__LAUNCH": sections})


def test_whom_to_notify_is_a_list_of_addresses_or_variables_and_on_what(tmp_path: Path) -> None:
    notify = settings_from(
        tmp_path, {"E3_NOTIFY__URLS": "ntfys://ntfy.sh/topic,env:CHAT", "E3_NOTIFY__ON": "night"}
    ).notify
    assert [url.get_secret_value() for url in notify.urls] == ["ntfys://ntfy.sh/topic", "env:CHAT"]
    assert notify.on == ("night",)
    assert "topic" not in repr(notify)
    assert len(settings_from(tmp_path, {}).notify.on) == 5


@pytest.mark.parametrize(
    "urls", ["hunter2", "env:hunter2-", "[{discord: hunter2}]", "[5, hunter2]", "[ntfy hunter2://x]"]
)
def test_an_address_that_is_none_is_not_shown(tmp_path: Path, urls: str) -> None:
    with pytest.raises(Complaints, match=r"^E3_NOTIFY__URLS: notify.urls: .*: write a list of addresses") as found:
        settings_from(tmp_path, {"E3_NOTIFY__URLS": urls})
    assert "hunter2" not in str(found.value)
