"""Which configuration counts, where the workspace is, what overrides what; what is wrong is one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from comfyui_agent.config.loader import load_workspace
from comfyui_agent.config.settings import Settings
from comfyui_agent.config.validation import Complaints

CONFIG = "config/global_config.yaml"
INNER_CONFIG = "comfyui_agent/config/global_config.yaml"
WHOLE = "write a whole number from 0 to 1000, such as 2"


def write(path: Path, text: str | bytes = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def settings_of(root: Path, text: str | bytes = "", environment: dict[str, str] | None = None) -> Settings:
    write(root / CONFIG, text)
    return load_workspace(root, environment or {}).settings


def complaint(root: Path, text: str | bytes = "", environment: dict[str, str] | None = None) -> str:
    """The one line, with the folder of the test called ROOT."""
    write(root / CONFIG, text)
    with pytest.raises(Complaints) as caught:
        load_workspace(root, environment or {})
    line = str(caught.value)
    assert "\n" not in line
    return line.replace(str(root), "ROOT")


# Which file counts


def test_each_way_to_name_a_configuration_wins_over_the_next(tmp_path: Path) -> None:
    write(tmp_path / "one.yaml", "retry_limit: 11")
    write(tmp_path / "two.yaml", "retry_limit: 12")
    write(tmp_path / CONFIG, "retry_limit: 13")
    write(tmp_path / INNER_CONFIG, "retry_limit: 14")
    named = {"E3_CONFIG": "two.yaml"}

    assert load_workspace(tmp_path, named, "one.yaml").settings.retry_limit == 11
    assert load_workspace(tmp_path, named).settings.retry_limit == 12
    assert load_workspace(tmp_path, {}).settings.retry_limit == 13
    (tmp_path / CONFIG).unlink()
    assert load_workspace(tmp_path, {}).settings.retry_limit == 14
    (tmp_path / INNER_CONFIG).unlink()
    assert load_workspace(tmp_path, {}).settings.retry_limit == 2


def test_an_empty_e3_config_names_nothing(tmp_path: Path) -> None:
    write(tmp_path / CONFIG, "retry_limit: 13")
    assert load_workspace(tmp_path, {"E3_CONFIG": ""}).settings.retry_limit == 13


def test_the_workspace_is_above_config_or_beside_the_file(tmp_path: Path) -> None:
    for place, root in [
        (CONFIG, "."),
        (INNER_CONFIG, "."),
        ("settings.yaml", "."),
        ("deep/down/settings.yaml", "deep/down"),
        ("deep/config/any name.yaml", "deep"),
        ("deep/comfyui_agent/config/any.yaml", "deep"),
        ("comfyui_agent/settings.yaml", "comfyui_agent"),
        ("configs/global_config.yaml", "configs"),
    ]:
        write(tmp_path / place, "")
        workspace = load_workspace(tmp_path, {}, place)
        assert workspace.root == tmp_path / root, (place, root)
        assert workspace.config == tmp_path / place, (place, root)
        assert workspace.recipes == (tmp_path / place).parent / "workflows.yaml", (place, root)
        assert workspace.database == str(tmp_path / root / "database/comfyui_agent.db"), (place, root)


def test_without_a_file_the_workspace_is_the_folder(tmp_path: Path) -> None:
    workspace = load_workspace(tmp_path, {})
    assert (workspace.root, workspace.config) == (tmp_path, None)
    assert workspace.recipes == tmp_path / "config/workflows.yaml"


def test_a_relative_folder_is_below_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "night" / CONFIG, "retry_limit: 7")
    monkeypatch.chdir(tmp_path)
    workspace = load_workspace(Path("night"), {})
    assert workspace.root == tmp_path / "night"
    assert workspace.settings.retry_limit == 7
    assert load_workspace(Path(), {}).root == tmp_path


def test_from_inside_the_config_folder_the_workspace_is_still_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / CONFIG, "")
    monkeypatch.chdir(tmp_path / "config")
    assert load_workspace(Path(), {}, "global_config.yaml").root == tmp_path


def test_a_named_file_is_looked_up_below_the_folder_unless_it_is_absolute(tmp_path: Path) -> None:
    write(tmp_path / "a" / "x.yaml", "retry_limit: 7")
    assert load_workspace(tmp_path / "a", {}, "x.yaml").root == tmp_path / "a"
    assert load_workspace(tmp_path, {}, str(tmp_path / "a" / "x.yaml")).root == tmp_path / "a"
    assert load_workspace(tmp_path, {"E3_CONFIG": str(tmp_path / "a" / "x.yaml")}).settings.retry_limit == 7


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    write(tmp_path / "home" / "e3.yaml", "retry_limit: 7")
    assert load_workspace(tmp_path, {}, "~/e3.yaml").settings.retry_limit == 7


@pytest.mark.parametrize("name", ["nothing.yaml", "folder", "broken link", "nothing/below.yaml"])
@pytest.mark.parametrize("way", ["--config", "E3_CONFIG"])
def test_a_named_file_that_is_not_there_is_an_error_and_not_the_defaults(tmp_path: Path, name: str, way: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "broken link").symlink_to("nowhere")
    environment = {"E3_CONFIG": name} if way == "E3_CONFIG" else {}
    with pytest.raises(Complaints) as caught:
        load_workspace(tmp_path, environment, name if way == "--config" else None)
    expected = f"{way}: there is no file {tmp_path / name}: name an existing one, or run e3 init"
    assert str(caught.value) == expected


def test_a_name_that_no_file_can_have_is_an_error_of_one_line(tmp_path: Path) -> None:
    for name in ["x" * 300, "~no-such-user-here/e3.yaml"]:
        with pytest.raises(Complaints, match="--config: there is no file"):
            load_workspace(tmp_path, {}, name)


def test_a_folder_where_the_configuration_should_be_is_an_error(tmp_path: Path) -> None:
    (tmp_path / CONFIG).mkdir(parents=True)
    with pytest.raises(Complaints, match=r"global_config\.yaml"):
        load_workspace(tmp_path, {})


# What is in it


def test_every_key_of_the_onboarding_document_is_read(tmp_path: Path) -> None:
    text = """
default_priority: 40
retry_limit: 5
poll_interval_ms: 500
paths:
  jobs_processing: "in"
  jobs_finished: "out"
  database: "db/q.db"
comfyui:
  api_base_url: "http://gpu1:8188"
  timeout_seconds: 60
"""
    settings = settings_of(tmp_path, text)
    assert (settings.default_priority, settings.retry_limit, settings.poll_interval_ms) == (40, 5, 500)
    assert (settings.paths.jobs_processing, settings.paths.jobs_finished) == ("in", "out")
    assert settings.paths.database == "db/q.db"
    assert settings.comfyui.urls == ("http://gpu1:8188",)
    assert settings.comfyui.timeout_seconds == 60


def test_servers_win_over_the_one_address(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "comfyui: {api_base_url: 'http://a:1', servers: ['http://b:2', 'http://c:3']}")
    assert settings.comfyui.urls == ("http://b:2", "http://c:3")


def test_a_file_that_says_nothing_is_the_defaults(tmp_path: Path) -> None:
    for text in ["", "# nothing\n", "---\n", "{}\n", b"\xef\xbb\xbf"]:
        assert settings_of(tmp_path, text) == Settings(), text


def test_what_is_wrong_is_one_line_with_file_line_key_value_and_remedy(tmp_path: Path) -> None:
    for text, line in [
        (
            "\nretri_limit: 5\n",
            "ROOT/config/global_config.yaml:2: retri_limit: there is no such key; did you mean retry_limit?",
        ),
        (
            "comfyui:\n  server: http://a\n",
            "ROOT/config/global_config.yaml:2: comfyui.server: there is no such key; did you mean servers?",
        ),
        ("retry_limit: many\n", f"ROOT/config/global_config.yaml:1: retry_limit: 'many' cannot be used: {WHOLE}"),
        ("retry_limit: 2.5\n", f"ROOT/config/global_config.yaml:1: retry_limit: 2.5 cannot be used: {WHOLE}"),
        ("retry_limit: -1\n", f"ROOT/config/global_config.yaml:1: retry_limit: -1 cannot be used: {WHOLE}"),
        ('retry_limit: "a\\nb"\n', f"ROOT/config/global_config.yaml:1: retry_limit: 'a\\nb' cannot be used: {WHOLE}"),
        (
            "comfyui: 5\n",
            "ROOT/config/global_config.yaml:1: comfyui: 5 cannot be used: "
            "write a section with keys such as api_base_url",
        ),
        (
            "a: 1\n\nlease_seconds: 0\nretry_limit: x\n",
            "ROOT/config/global_config.yaml:4: retry_limit: 'x' cannot be used: "
            "write a whole number from 0 to 1000, such as 2 (and 2 more)",
        ),
        (
            "retry_limit: 1\nretry_limit: 2\n",
            "ROOT/config/global_config.yaml:2: the key 'retry_limit' is there twice: keep one",
        ),
        ("- a\n", "ROOT/config/global_config.yaml: it is not a mapping: write lines such as retry_limit: 2"),
        ("hello\n", "ROOT/config/global_config.yaml: it is not a mapping: write lines such as retry_limit: 2"),
    ]:
        assert complaint(tmp_path, text) == line, (text, line)


def test_what_is_no_yaml_is_one_line_with_file_and_line(tmp_path: Path) -> None:
    for text in ["a: [1\n", "a:\n\tb: 1\n", "a: 1\n---\nb: 2\n", b"\xff\xfe", b"a: \x00\n"]:
        assert complaint(tmp_path, text).startswith("ROOT/config/global_config.yaml:"), text


def test_nothing_but_a_mapping_is_a_configuration(tmp_path: Path) -> None:
    for text in ["false", "0", "[]", "''"]:
        assert "it is not a mapping" in complaint(tmp_path, text), text


def test_a_file_of_any_size_is_not_read(tmp_path: Path) -> None:
    with write(tmp_path / CONFIG).open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    with pytest.raises(Complaints, match="it is too large"):
        load_workspace(tmp_path, {})


def test_the_file_is_named_as_it_is_seen_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / CONFIG, "nonsense: 1")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Complaints, match=r"^config/global_config\.yaml:1: nonsense: "):
        load_workspace(Path(), {})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(Complaints) as caught:
        load_workspace(Path(".."), {})
    assert os.sep + CONFIG + ":1: nonsense: " in str(caught.value)


# The environment


def test_the_environment_wins_over_dotenv_and_dotenv_over_the_file(tmp_path: Path) -> None:
    write(tmp_path / CONFIG, "retry_limit: 1\npoison_limit: 1\nlease_seconds: 10\n")
    write(tmp_path / ".env", "E3_RETRY_LIMIT=2\nE3_POISON_LIMIT=2\n")
    settings = load_workspace(tmp_path, {"E3_RETRY_LIMIT": "3"}).settings
    assert (settings.retry_limit, settings.poison_limit, settings.lease_seconds) == (3, 2, 10)


def test_one_key_from_the_environment_leaves_the_others_of_its_section(tmp_path: Path) -> None:
    text = "comfyui: {api_base_url: 'http://a:1', timeout_seconds: 7}"
    settings = settings_of(tmp_path, text, {"E3_COMFYUI__API_BASE_URL": "http://b:2"})
    assert settings.comfyui.urls == ("http://b:2",)
    assert settings.comfyui.timeout_seconds == 7


def test_the_three_variables_of_the_document_mean_what_it_says(tmp_path: Path) -> None:
    environment = {
        "COMFY_MAX_RETRIES": "7",
        "COMFY_RETRY_BACKOFF_SEC": "1,2,3",
        "COMFY_ALLOW_PARALLEL_PAGES": "false",
    }
    settings = settings_of(tmp_path, "books: {retry_limit: 1}\nretry_backoff_seconds: [9]\n", environment)
    assert settings.books.retry_limit == 7
    assert settings.books.parallel_pages is False
    assert settings.retry_backoff_seconds == (1.0, 2.0, 3.0)
    assert settings.retry_limit == 2


def test_without_them_three_retries_in_parallel(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "", {"COMFY_MAX_RETRIES": "", "COMFY_RETRY_BACKOFF_SEC": " "})
    assert (settings.books.retry_limit, settings.books.parallel_pages) == (3, True)
    assert settings.retry_backoff_seconds == (15.0, 45.0, 90.0)


def test_the_longer_name_wins_where_both_are_given(tmp_path: Path) -> None:
    environment = {"E3_RETRY_BACKOFF_SECONDS": "9", "COMFY_RETRY_BACKOFF_SEC": "1"}
    assert settings_of(tmp_path, "", environment).retry_backoff_seconds == (9.0,)


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("E3_RETRY_LIMIT", "many", f"E3_RETRY_LIMIT: retry_limit: 'many' cannot be used: {WHOLE}"),
        ("E3_RETRI_LIMIT", "5", "E3_RETRI_LIMIT: retri_limit: there is no such key; did you mean retry_limit?"),
        (
            "E3_COMFYUI__SERVER",
            "http://a",
            "E3_COMFYUI__SERVER: comfyui.server: there is no such key; did you mean servers?",
        ),
        (
            "COMFY_ALLOW_PARALLEL_PAGES",
            "maybe",
            "COMFY_ALLOW_PARALLEL_PAGES: books.parallel_pages: 'maybe' cannot be used: write true or false",
        ),
        (
            "COMFY_MAX_RETRIES",
            "three",
            "COMFY_MAX_RETRIES: books.retry_limit: 'three' cannot be used: "
            "write a whole number from 0 to 1000, such as 3",
        ),
    ],
)
@pytest.mark.parametrize("way", ["environment", ".env"])
def test_a_bad_variable_is_called_by_its_name(tmp_path: Path, name: str, value: str, line: str, way: str) -> None:
    write(tmp_path / ".env", f"{name}={value}\n" if way == ".env" else "")
    assert complaint(tmp_path, "", {name: value} if way == "environment" else {}) == line


def test_a_section_given_as_a_value_is_called_by_its_name(tmp_path: Path) -> None:
    for environment in (
        {"E3_COMFYUI": "3", "E3_COMFYUI__SERVERS": "http://a"},
        {"E3_COMFYUI__SERVERS": "http://a", "E3_COMFYUI": "3"},
    ):
        assert complaint(tmp_path, "", environment).startswith("E3_COMFYUI")


def test_a_key_below_a_value_is_called_by_its_variable(tmp_path: Path) -> None:
    for text in ["", "comfyui: {servers: ['http://a']}"]:
        assert complaint(tmp_path, text, {"E3_COMFYUI__SERVERS__FIRST": "http://a"}).startswith(
            "E3_COMFYUI__SERVERS__FIRST"
        ), text


def test_variables_of_others_are_none_of_our_business(tmp_path: Path) -> None:
    others = {"PATH": "/bin", "COMFY_OTHER": "x", "E3": "x", "COMFYUI_RETRY_LIMIT": "x", "E3_COMFYUI_DIR": "x"}
    assert settings_of(tmp_path, "", others) == Settings()


def test_dotenv_is_read_as_people_write_it(tmp_path: Path) -> None:
    for line in [
        "COMFY_MAX_RETRIES=7",
        "  COMFY_MAX_RETRIES = 7  ",
        "export COMFY_MAX_RETRIES=7",
        "COMFY_MAX_RETRIES='7'",
        'COMFY_MAX_RETRIES="7"',
        "COMFY_MAX_RETRIES=7 # seven",
        "COMFY_MAX_RETRIES=7\r",
        "# COMFY_MAX_RETRIES=1\nCOMFY_MAX_RETRIES=7",
        "COMFY_MAX_RETRIES=1\nCOMFY_MAX_RETRIES=7",
        "SOMETHING ELSE\nOTHER=x=y\n=\nCOMFY_MAX_RETRIES=7",
    ]:
        write(tmp_path / ".env", f"{line}\n")
        assert load_workspace(tmp_path, {}).settings.books.retry_limit == 7, line


def test_dotenv_with_comments_or_a_mark_is_read_too(tmp_path: Path) -> None:
    for text, limit in [
        (b'COMFY_MAX_RETRIES="7" # seven\n', 7),
        (b"COMFY_MAX_RETRIES= # three\n", 3),
        (b"\xef\xbb\xbfCOMFY_MAX_RETRIES=7\n", 7),
    ]:
        write(tmp_path / ".env", text)
        assert load_workspace(tmp_path, {}).settings.books.retry_limit == limit, (text, limit)


def test_the_environment_wins_over_dotenv_by_whichever_name(tmp_path: Path) -> None:
    write(tmp_path / ".env", "E3_RETRY_BACKOFF_SECONDS=9\n")
    assert settings_of(tmp_path, "", {"COMFY_RETRY_BACKOFF_SEC": "1"}).retry_backoff_seconds == (1.0,)


def test_dotenv_lies_in_the_workspace_and_names_no_configuration(tmp_path: Path) -> None:
    write(tmp_path / ".env", "E3_CONFIG=other.yaml\nE3_RETRY_LIMIT=9\n")
    write(tmp_path / "night" / CONFIG, "")
    write(tmp_path / "night" / ".env", "E3_CONFIG=other.yaml\nE3_RETRY_LIMIT=7\n")
    assert load_workspace(tmp_path, {}, f"night/{CONFIG}").settings.retry_limit == 7


def test_a_dotenv_that_is_a_folder_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / ".env").mkdir()
    assert load_workspace(tmp_path, {}).settings == Settings()


# Secrets


def test_a_password_in_an_address_is_never_repeated(tmp_path: Path) -> None:
    for text, environment in [
        ("comfyui: {api_base_url: ['http://me:secret@gpu1']}", {}),
        ("comfyui: {servers: [{url: 'http://me:secret@gpu1'}]}", {}),
        ("comfyui: {server: 'http://me:secret@gpu1'}", {}),
        ("comfyui: http://me:secret@gpu1", {}),
        ("database: postgresql://me:secret@db/e3", {}),
        ("database: {url: [postgresql://me:secret@db/e3]}", {}),
        ("retry_limit: http://me:secret@gpu1", {}),
        ("", {"E3_COMFYUI": "http://me:secret@gpu1"}),
        ("", {"E3_DATABASE": "postgresql://me:secret@db/e3"}),
        ("", {"E3_RETRY_BACKOFF_SECONDS": "1,http://me:secret@gpu1"}),
        ("", {"COMFY_MAX_RETRIES": "http://me:secret@gpu1"}),
    ]:
        assert "secret" not in complaint(tmp_path, text, environment), (text, environment)


# Paths


@pytest.mark.parametrize("place", ["../out", "/", "/tmp", ".", "", "a/../..", "link"])
def test_results_stay_in_the_workspace(tmp_path: Path, place: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    line = complaint(root, f"retry_limit: 2\npaths:\n  jobs_finished: '{place}'\n")
    assert line.startswith("ROOT/config/global_config.yaml:3: paths.jobs_finished: ")
    assert "write a folder" in line


def test_job_files_may_lie_anywhere(tmp_path: Path) -> None:
    write(tmp_path / "root" / CONFIG, f"paths: {{jobs_processing: '{tmp_path}/drop'}}")
    assert load_workspace(tmp_path / "root", {}).processing == tmp_path / "drop"


@pytest.mark.parametrize("key", ["jobs_processing", "jobs_finished", "workflows"])
@pytest.mark.parametrize("place", ["a file", "a file/below"])
def test_a_file_where_a_folder_should_be_is_said(tmp_path: Path, key: str, place: str) -> None:
    write(tmp_path / "a file")
    line = complaint(tmp_path, f"paths:\n  {key}: {place}\n")
    assert line == f"ROOT/config/global_config.yaml:2: paths.{key}: ROOT/a file is a file: write the name of a folder"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("paths:\n  database: a folder\n", "2: paths.database"),
        ("database:\n  url: sqlite:///a folder\n", "2: database.url"),
        ("database:\n  url: a folder\n", "2: database.url"),
    ],
)
def test_a_folder_where_the_database_should_be_is_said(tmp_path: Path, text: str, where: str) -> None:
    (tmp_path / "a folder").mkdir()
    line = complaint(tmp_path, text)
    assert line.startswith(f"ROOT/config/global_config.yaml:{where}: ")
    assert line.endswith(" is a folder: write the name of a file")


def test_a_path_from_the_environment_is_complained_about_by_its_variable(tmp_path: Path) -> None:
    write(tmp_path / "file")
    assert complaint(tmp_path, "", {"E3_PATHS__WORKFLOWS": "file"}).startswith("E3_PATHS__WORKFLOWS: paths.workflows: ")


@pytest.mark.parametrize("key", ["jobs_processing", "jobs_finished", "workflows", "database"])
@pytest.mark.parametrize("place", ["x" * 300, "x/" * 3000], ids=["name", "path"])
def test_a_path_that_is_too_long_is_said(tmp_path: Path, key: str, place: str) -> None:
    assert f"2: paths.{key}: " in complaint(tmp_path, f"paths:\n  {key}: {place}\n")


def test_a_null_byte_in_the_folder_of_results_is_said(tmp_path: Path) -> None:
    assert "2: paths.jobs_finished: " in complaint(tmp_path, 'paths:\n  jobs_finished: "a\\0b"\n')


def test_a_null_byte_in_any_other_path_is_said(tmp_path: Path) -> None:
    for key in ["jobs_processing", "workflows", "database"]:
        assert f"2: paths.{key}: " in complaint(tmp_path, f'paths:\n  {key}: "a\\0b"\n'), key


def test_no_setting_is_anything_but_a_number(tmp_path: Path) -> None:
    for value in ["-inf", "nan", "-1", "many"]:
        assert complaint(tmp_path, "", {"E3_SLA__IMAGES_PER_MINUTE": value}).startswith(
            "E3_SLA__IMAGES_PER_MINUTE: "
        ), value


def test_no_setting_is_endless(tmp_path: Path) -> None:
    for value in ["inf", "1e999"]:
        complaint(tmp_path, "", {"E3_SLA__IMAGES_PER_MINUTE": value})
