"""`e3 init` makes a workspace that works, and never touches what is there already."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
import yaml

from support.command import e3
from support.terminal import like_anyone
from support.workspaces import call_e3, everything_in, run_e3

KINDS = ("image", "video", "audio", "speech", "3d")
FILES = {
    ".env.example",
    "config/global_config.yaml",
    "config/workflows.yaml",
    "workflows/wf_realistic_portrait.json",
    "workflows/wf_image_to_image.json",
    "workflows/wf_text_to_video.json",
    "examples/T2I_20250809123001_1_knight.yaml",
    "examples/I2I_watercolour.yaml",
    "examples/T2V_sunrise.yaml",
    "pictures/castle.png",
}
DATABASE = "database/comfyui_agent.db"


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def server_of(folder: Path) -> str:
    """The address in the configuration."""
    parsed = yaml.safe_load((folder / "config/global_config.yaml").read_text(encoding="utf-8"))
    address: str = parsed["comfyui"]["api_base_url"]
    return address


def test_it_makes_the_whole_tree(tmp_path: Path) -> None:
    answer = e3("init", "night", cwd=tmp_path)
    night = tmp_path / "night"
    assert (answer.returncode, answer.stderr) == (0, "")
    assert files_in(night) == FILES | {DATABASE}
    for base in ("jobs/processing", "jobs/finished"):
        assert {path.name for path in (night / base).iterdir()} == set(KINDS)
    assert all(f"made  {name}" in answer.stdout.splitlines() for name in FILES)
    assert f"A workspace is in {night}. Next:" in answer.stdout


def test_what_it_made_is_sound_and_the_documented_variables_are_in_it(tmp_path: Path) -> None:
    call_e3("init", cwd=tmp_path)
    assert call_e3("db", "check", cwd=tmp_path).returncode == 0
    workflows = yaml.safe_load((tmp_path / "config/workflows.yaml").read_text(encoding="utf-8"))
    assert set(workflows) == {"wf_realistic_portrait", "wf_image_to_image", "wf_text_to_video"}
    variables = (tmp_path / ".env.example").read_text(encoding="utf-8")
    assert all(
        name in variables for name in ("COMFY_MAX_RETRIES=3", "COMFY_RETRY_BACKOFF_SEC", "COMFY_ALLOW_PARALLEL_PAGES")
    )


def test_the_steps_that_it_names_work_as_they_are_printed(tmp_path: Path) -> None:
    answer = call_e3("init", "night", cwd=tmp_path)
    steps = [line.partition("#")[0].strip() for line in answer.stdout.partition("Next:\n")[2].splitlines()]
    assert steps == [
        "cd night && e3 doctor",
        "cp examples/T2I_*_knight.yaml jobs/processing/image/",
        "e3 run",
    ]
    assert len(list((tmp_path / "night").glob("examples/T2I_*_knight.yaml"))) == 1
    here = call_e3("init", cwd=tmp_path / "night")
    assert "cd " not in here.stdout


def test_a_folder_with_a_space_is_named_so_that_a_shell_understands_it(tmp_path: Path) -> None:
    answer = call_e3("init", "my night", cwd=tmp_path)
    [step] = [line for line in answer.stdout.splitlines() if "e3 doctor" in line]
    assert shlex.split(step.partition("&&")[0]) == ["cd", "my night"]


def test_a_second_time_it_changes_nothing(tmp_path: Path) -> None:
    call_e3("init", cwd=tmp_path)
    before = everything_in(tmp_path)
    again = call_e3("init", cwd=tmp_path)
    assert again.returncode == 0
    assert "made  " not in again.stdout
    assert {line.removeprefix("kept  ") for line in again.stdout.splitlines() if line.startswith("kept")} == FILES
    assert everything_in(tmp_path) == before


def test_what_people_changed_stays_and_what_they_deleted_comes_back(tmp_path: Path) -> None:
    call_e3("init", cwd=tmp_path)
    config = tmp_path / "config/global_config.yaml"
    config.write_text("retry_limit: 7\n", encoding="utf-8")
    (tmp_path / "config/workflows.yaml").unlink()
    answer = call_e3("init", cwd=tmp_path)
    assert answer.returncode == 0
    assert config.read_text(encoding="utf-8") == "retry_limit: 7\n"
    assert "made  config/workflows.yaml" in answer.stdout.splitlines()
    assert "kept  config/global_config.yaml" in answer.stdout.splitlines()


def test_a_folder_with_files_of_other_people_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows/mine.json").write_text("{}", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("remember", encoding="utf-8")
    before = everything_in(tmp_path)
    assert call_e3("init", cwd=tmp_path).returncode == 0
    after = everything_in(tmp_path)
    assert {name: after[name] for name in before} == before
    assert set(after) >= FILES


def test_the_server_is_written_into_the_configuration(tmp_path: Path) -> None:
    assert call_e3("init", "--server", "https://gpu1:8443/comfy", cwd=tmp_path).returncode == 0
    assert server_of(tmp_path) == "https://gpu1:8443/comfy"


def test_an_address_with_a_quote_makes_a_configuration_that_can_be_read(tmp_path: Path) -> None:
    url = 'http://gpu1:8188/?token=a"b'
    answer = call_e3("init", "--server", url, cwd=tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert server_of(tmp_path) == url


def test_a_server_that_cannot_be_written_because_the_configuration_is_there_is_not_passed_over(tmp_path: Path) -> None:
    call_e3("init", cwd=tmp_path)
    answer = call_e3("init", "--server", "http://gpu7:8188", cwd=tmp_path)
    assert "gpu7" in answer.stdout + answer.stderr


@pytest.mark.parametrize("url", ["gpu1:8188", "ftp://gpu1", ""])
def test_a_bad_address_is_a_usage_error_and_nothing_is_made(tmp_path: Path, url: str) -> None:
    answer = call_e3("init", f"--server={url}", "night", cwd=tmp_path)
    if not url:
        assert server_of(tmp_path / "night") == "http://127.0.0.1:8188"
        return
    assert (answer.returncode, answer.stdout) == (2, "")
    (line,) = answer.stderr.splitlines()
    assert line.startswith("e3: --server: ")
    assert list(tmp_path.iterdir()) == []


def test_as_json_it_is_one_document(tmp_path: Path) -> None:
    first = e3("init", "night", "--json", cwd=tmp_path)
    assert (first.returncode, first.stderr) == (0, "")
    made = json.loads(first.stdout)
    assert made.keys() == {"workspace", "made", "kept"}
    assert (made["workspace"], set(made["made"]), made["kept"]) == (str(tmp_path / "night"), FILES, [])
    kept = json.loads(call_e3("init", "night", "--json", cwd=tmp_path).stdout)
    assert (kept["made"], set(kept["kept"])) == ([], FILES)


@pytest.mark.skipif(os.name != "posix", reason="rights of files")
def test_a_folder_that_may_not_be_written_is_one_line(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    answer = run_e3("init", "closed", cwd=tmp_path, preexec_fn=like_anyone)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == "e3: closed/jobs cannot be made: Permission denied\n"
    assert list(closed.iterdir()) == []


def test_a_file_in_the_way_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("mine", encoding="utf-8")
    answer = call_e3("init", cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (1, "")
    (line,) = answer.stderr.splitlines()
    assert line.startswith("e3: jobs/processing")
    assert (tmp_path / "jobs").read_text(encoding="utf-8") == "mine"


def test_a_broken_configuration_that_is_there_is_named_and_kept(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/global_config.yaml").write_text("retry_limt: 3\n", encoding="utf-8")
    answer = call_e3("init", cwd=tmp_path)
    assert answer.returncode == 2
    (line,) = answer.stderr.splitlines()
    assert line.startswith("e3: config/global_config.yaml:1: retry_limt: ")
    assert "did you mean retry_limit?" in line
    assert (tmp_path / "config/global_config.yaml").read_text(encoding="utf-8") == "retry_limt: 3\n"


def test_the_new_workspace_is_this_one_whatever_e3_config_names(tmp_path: Path) -> None:
    call_e3("init", "other", cwd=tmp_path)
    other = str(tmp_path / "other/config/global_config.yaml")
    answer = run_e3("init", "night", "--json", cwd=tmp_path, E3_CONFIG=other)
    assert json.loads(answer.stdout)["workspace"] == str(tmp_path / "night")
    assert (tmp_path / "night" / DATABASE).is_file()
