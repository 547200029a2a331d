"""Bad input through the command line: one clear line each, the right exit code, and everything else goes on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.domain.states import JobStatus
from support.breakage import tree, wait_told
from support.sampling import some
from support.servers import ServerProcess, free_port, simulator
from support.workspaces import call_e3
from support.yaml_workspaces import (
    COLOUR,
    WORKFLOWS,
    MakeYaml,
    YamlWorkspace,
    check_files_promises,
    colour_job,
    picture_job,
    workspace_of_nobody,
    write_picture,
    yaml_workspaces,
)

Start = Callable[..., ServerProcess]

EDITOR = {"last_node_id": 9, "nodes": [{"id": 1, "type": "Gone"}], "links": [], "version": 0.4}


@pytest.fixture
def make_yaml(tmp_path: Path) -> Iterator[MakeYaml]:
    with yaml_workspaces(tmp_path) as make:
        yield make


@pytest.fixture
def without_server(make_yaml: MakeYaml) -> YamlWorkspace:
    """A workspace whose server is not up: what is wrong is told before it would be needed."""
    return make_yaml(f"http://127.0.0.1:{free_port()}")


# Files of jobs.

HEAD = f"job_type: T2I\nworkflow_id: {COLOUR}\n"

BAD = {
    "broken": (HEAD + "inputs: {color: 1\n", ":4: it is not YAML: "),
    "unclosed_quote": (HEAD + 'inputs: {color: "1}\n', "it is not YAML: "),
    "tabs": (HEAD + "inputs:\n\tcolor: 1\n", ":4: it is not YAML: "),
    "unknown_key": (colour_job(1) + "priorty: 3\n", ":5: priorty: there is no such key; did you mean priority?"),
    "unknown_inner_key": (
        colour_job(1, outputs={"filepath": "x.png"}),
        ":5: outputs.filepath: there is no such key; did you mean file_path?",
    ),
    "no_type": (
        f"workflow_id: {COLOUR}\ninputs: {{color: 1}}\n",
        ": job_type: is missing: write one of T2I, I2I, T2V, I2V, AUDIO, T2A, SPEECH, TTS, T2S, 3D",
    ),
    "unknown_type": (f"job_type: T2X\nworkflow_id: {COLOUR}\ninputs: {{color: 1}}\n", ":1: job_type: "),
    "unknown_workflow": (
        "job_type: T2I\nworkflow_id: wf_color\ninputs: {color: 1}\n",
        f":2: workflow_id: 'wf_color' is not in workflows.yaml; did you mean {COLOUR}?",
    ),
    "missing_input": (HEAD, f": inputs.color: is missing: {COLOUR} needs color"),
    "unknown_input": (
        HEAD + "inputs: {color: 1, colr: 2}\n",
        ":3: inputs.colr: 'colr' has no place in the workflow; did you mean color?",
    ),
    "ambiguous_input": (
        "job_type: T2I\nworkflow_id: wf_two\ninputs: {color: 2}\n",
        ":3: inputs.color: 'color' fits several places: 1.color (EmptyImage), 3.color (EmptyImage). Name one, such as",
    ),
    "wrong_type": (
        HEAD + "inputs: {color: red}\n",
        ":3: inputs.color: 'red' does not fit: 1.color (EmptyImage) takes a whole number",
    ),
    "wrong_priority": (colour_job(1) + "priority: high\n", ":5: priority: 'high' cannot be used: write a whole number"),
    "editor_format": (
        "job_type: T2I\nworkflow_id: wf_editor\n",
        "editor.json is refused: node 1 (Gone): the server has no node Gone",
    ),
    "no_template": (
        "job_type: T2I\nworkflow_id: wf_gone\n",
        ":2: workflow_id: its template workflows/gone.json is not there: export one, Workflow → Export (API)",
    ),
    "outside": (
        colour_job(1, outputs={"file_path": "../knight.png"}),
        ":5: outputs.file_path: '../knight.png' leads out of the workspace",
    ),
    "own_folder": (
        colour_job(1, outputs={"file_path": "config/knight.png"}),
        ":5: outputs.file_path: 'config/knight.png' is where E3 keeps its own files",
    ),
    "taken": (
        colour_job(1, outputs={"file_path": "jobs/finished/image/shared.png"}),
        "outputs.file_path: jobs/finished/image/shared.png belongs to the job good_1.yaml: give this one another",
    ),
    "no_picture": (picture_job("pictures/gone.png"), ":4: inputs.image: there is no file 'pictures/gone.png'"),
    "picture_outside": (picture_job("/etc/hostname"), ":4: inputs.image: '/etc/hostname' lies outside the workspace"),
    "no_picture_at_all": (picture_job("pictures/notes.png"), ":4: inputs.image: "),
    "cut_picture": (picture_job("pictures/cut.png"), ":4: inputs.image: "),
    "no_node": (colour_job(1, outputs={"node": "7"}), ":5: outputs.node: the workflow has no node '7'; there are 1, 2"),
    "empty": ("", ": it is empty: write job_type: and the other keys"),
}


def furnish(workspace: YamlWorkspace) -> None:
    """Workflows and pictures that cannot be used, beside those that can."""
    more = "wf_editor:\n  template_path: workflows/editor.json\nwf_gone:\n  template_path: workflows/gone.json\n"
    more += "wf_two:\n  template_path: workflows/two.json\n"
    (workspace.root / "config" / "workflows.yaml").write_text(WORKFLOWS + more)
    (workspace.root / "workflows" / "editor.json").write_text(json.dumps(EDITOR))
    graph = json.loads((workspace.root / "workflows" / f"{COLOUR}.json").read_text())
    graph["3"] = graph["1"]
    (workspace.root / "workflows" / "two.json").write_text(json.dumps(graph))
    whole = write_picture(workspace.root / "pictures" / "whole.png")
    whole.with_name("notes.png").write_text("not a picture at all")
    whole.with_name("cut.png").write_bytes(whole.read_bytes()[:60])


class Evening:
    """All bad files and some good ones, worked off by one `e3 run --until-idle`."""

    def __init__(self, workspace: YamlWorkspace) -> None:
        self.workspace = workspace
        furnish(workspace)
        workspace.drop("good_1.yaml", colour_job(11, outputs={"file_path": "jobs/finished/image/shared.png"}))
        for name, (content, _) in BAD.items():
            workspace.drop(f"{name}.yaml", content)
        workspace.drop("good_2.yaml", colour_job(12))
        self.run = workspace.call("run", "--until-idle")


@pytest.fixture(scope="module")
def evening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evening]:
    server = simulator(tmp_path_factory.mktemp("server")).start()
    try:
        with yaml_workspaces(tmp_path_factory.mktemp("evening")) as make:
            yield Evening(make(server.url))
    finally:
        server.kill()


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_one_clear_line_and_stays_where_it_is(evening: Evening, case: str) -> None:
    words = BAD[case][1]
    path = f"jobs/processing/image/{case}.yaml"
    job = evening.workspace.job(f"{case}.yaml")
    assert (job.status, job.run_count, job.failure_class) == (JobStatus.FAILED, 0, "invalid")
    [line] = (job.error_trace or "").splitlines()
    assert line.startswith((f"invalid: {path}:", "invalid: outputs.file_path:"))
    assert words in line
    [told] = [line for line in evening.run.stdout.splitlines() if f"  {case}.yaml  " in line]
    assert "Needs attention" in told
    assert words in told
    assert (evening.workspace.root / path).read_text() == BAD[case][0]


def test_a_result_that_is_taken_is_reported_with_file_and_line(evening: Evening) -> None:
    trace = evening.workspace.job("taken.yaml").error_trace or ""
    assert trace.startswith("invalid: jobs/processing/image/taken.yaml:5: outputs.file_path: ")


def test_good_files_among_bad_ones_are_rendered_and_the_exit_says_that_some_failed(evening: Evening) -> None:
    workspace, run = evening.workspace, evening.run
    assert run.returncode == 1
    assert "Traceback" not in run.stderr + run.stdout
    for name in ("good_1.yaml", "good_2.yaml"):
        job = workspace.job(name)
        assert job.status is JobStatus.DONE
        assert (workspace.root / job.outputs[0]).is_file()
        assert (workspace.finished / name).is_file()
    assert f"2 done, {len(BAD)} need attention, 0 pending." in run.stdout


def test_what_failed_is_listed_with_its_reason(evening: Evening) -> None:
    listed = call_e3("queue", "ls", "--status", "failed", "--json", "-C", str(evening.workspace.root))
    assert {row["config_name"] for row in json.loads(listed.stdout)} == {f"{name}.yaml" for name in BAD}
    shown = ask(evening.workspace, "show", "unknown_key.yaml", "--json")
    assert "did you mean priority?" in json.loads(shown.stdout)["error_trace"]


@pytest.mark.parametrize("case", ["broken", "unknown_key", "unknown_workflow", "missing_input", "no_picture", "empty"])
def test_adding_a_bad_file_from_elsewhere_is_one_line_and_copies_nothing(
    without_server: YamlWorkspace, tmp_path: Path, case: str
) -> None:
    path = tmp_path / f"{case}.yaml"
    path.write_text(BAD[case][0])
    added = ask(without_server, "add", str(path))
    assert (added.returncode, added.stdout) == (1, "")
    [line] = added.stderr.splitlines()
    assert line.startswith(f"e3: {case}.yaml: ")
    assert BAD[case][1].partition(": ")[2] in line
    assert without_server.waiting_files() == []
    assert without_server.jobs() == []


@pytest.mark.slow
def test_a_bad_file_that_is_mended_is_rendered_and_so_nothing_is_lost(start_server: Start, make_yaml: MakeYaml) -> None:
    workspace = make_yaml(start_server().url)
    agent = workspace.start()
    names = ["broken.yaml", "unknown_key.yaml", "missing_input.yaml", "outside.yaml", "no_picture.yaml"]
    for name in names:
        workspace.drop(name, BAD[name.removesuffix(".yaml")][0])
    for name in names:
        workspace.wait_end(name, JobStatus.FAILED)
    for number, name in enumerate(names):
        workspace.drop(name, colour_job(20 + number), is_plain=number % 2 == 1)
    for name in names:
        workspace.wait_end(name)
    assert agent.poll() is None
    workspace.kill(agent)
    assert workspace.finish() == 0
    assert workspace.waiting_files() == []
    assert {path.name for path in workspace.finished.glob("*.yaml")} == set(names)


@pytest.mark.slow
def test_a_missing_picture_that_comes_later_is_found_by_a_retry(start_server: Start, make_yaml: MakeYaml) -> None:
    workspace = make_yaml(start_server().url)
    workspace.drop("late.yaml", picture_job("pictures/late.png"))
    assert workspace.call("run", "--until-idle").returncode == 1
    write_picture(workspace.root / "pictures" / "late.png")
    assert workspace.call("retry", "--failed").returncode == 0
    assert workspace.call("run", "--until-idle").returncode == 0
    assert workspace.job("late.yaml").status is JobStatus.DONE


@pytest.mark.slow
def test_jobs_wait_for_a_server_that_is_down_and_go_on_when_it_comes_up(
    start_server: Start, make_yaml: MakeYaml
) -> None:
    server = start_server()
    server.kill()
    workspace = make_yaml(server.url)
    workspace.drop_colours(range(5))
    agent = workspace.start("--until-idle")
    wait_told(workspace, "server.down", server=server.url)
    workspace.wait_for(lambda: workspace.counts().pending == 5, "five that wait")
    assert [job.run_count for job in workspace.jobs()] == [0] * 5
    workspace.drop_colours(range(5, 8))
    workspace.wait_for(lambda: workspace.counts().pending == 8, "files to be taken in meanwhile")
    server.start()
    assert agent.wait(60) == 0, workspace.tail()
    assert [job.retries_attempted for job in check_files_promises(workspace)] == [0] * 8


# Workspaces.

COMMANDS = pytest.mark.parametrize("command", ["run", "monitor"])


def ask(workspace: YamlWorkspace, command: str, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command that ends soon, in this process."""
    return call_e3(command, "-C", str(workspace.root), *flags, **environment)


def check_refused(answer: subprocess.CompletedProcess[str], code: int, *words: str) -> str:
    """One line on stderr that says what and where, nothing on stdout, and the exit code."""
    assert answer.returncode == code, (answer.stdout, answer.stderr)
    assert answer.stdout == ""
    [line] = answer.stderr.splitlines()
    assert line.startswith("e3: ")
    for each in words:
        assert each in line, line
    return line


@COMMANDS
def test_a_folder_that_is_no_workspace_is_one_line_and_stays_empty(tmp_path: Path, command: str) -> None:
    answer = call_e3(command, "--until-idle", "-C", str(tmp_path))
    check_refused(answer, 1, f"there is no workspace in {tmp_path}", "e3 init")
    assert list(tmp_path.iterdir()) == []


@COMMANDS
def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path, command: str) -> None:
    check_refused(call_e3(command, "-C", str(tmp_path / "nowhere")), 2, "there is no folder", "nowhere")
    missing = call_e3(command, "-C", str(tmp_path), "--config", "nowhere.yaml")
    check_refused(missing, 2, "--config", "there is no file", "nowhere.yaml")


CONFIGS = {
    "broken": ("retry_limit: [2\n", ["global_config.yaml:", "it is not YAML"]),
    "binary": (b"\xff\xfe\x00", ["global_config.yaml:1", "UTF-8"]),
    "not_a_mapping": ("- retry_limit: 2\n", ["global_config.yaml", "it is not a mapping"]),
    "unknown_key": (
        "retry_limit: 2\nretry_limt: 3\n",
        ["global_config.yaml:2: retry_limt", "did you mean retry_limit?"],
    ),
    "unknown_inner_key": (
        "comfyui:\n  api_url: http://x\n",
        ["global_config.yaml:2: comfyui.api_url", "did you mean api_base_url?"],
    ),
    "wrong_type": ("retry_limit: many\n", ["global_config.yaml:1: retry_limit: 'many' cannot be used: write a whole"]),
    "out_of_range": (
        "lease_seconds: 0\n",
        ["global_config.yaml:1: lease_seconds: 0 cannot be used: write seconds from"],
    ),
    "section_as_value": ("comfyui: http://x:8188\n", ["global_config.yaml:1: comfyui", "a section with keys"]),
    "results_outside": ("paths:\n  jobs_finished: ../elsewhere\n", ["global_config.yaml:2: paths.jobs_finished"]),
    "file_as_folder": (
        "paths:\n  jobs_processing: config/workflows.yaml\n",
        ["global_config.yaml:2: paths.jobs_processing", "is a file: write the name of a folder"],
    ),
    "folder_as_database": ("paths:\n  database: jobs\n", ["global_config.yaml:2: paths.database", "is a folder"]),
}


@COMMANDS
@pytest.mark.parametrize("case", CONFIGS)
def test_a_wrong_configuration_is_one_line_with_file_line_and_key(
    without_server: YamlWorkspace, case: str, command: str
) -> None:
    content, words = CONFIGS[case]
    config = without_server.root / "config" / "global_config.yaml"
    config.write_bytes(content if isinstance(content, bytes) else content.encode())
    without_server.drop("knight.yaml", colour_job(1))
    before = tree(without_server.root)
    check_refused(ask(without_server, command, "--until-idle"), 2, *words)
    assert tree(without_server.root) == before


VARIABLES = {
    "unknown": ({"E3_RETRY_LIMT": "3"}, ["E3_RETRY_LIMT", "did you mean retry_limit?"]),
    "wrong": ({"E3_RETRY_LIMIT": "many"}, ["E3_RETRY_LIMIT", "'many' cannot be used"]),
    "documented": ({"COMFY_MAX_RETRIES": "many"}, ["COMFY_MAX_RETRIES", "'many' cannot be used"]),
    "address": ({"E3_COMFYUI__API_BASE_URL": "ftp://gpu"}, ["address", "http://127.0.0.1:8188"]),
}


@pytest.mark.parametrize("case", VARIABLES)
def test_a_wrong_variable_is_one_line_with_its_name(make_yaml: MakeYaml, case: str) -> None:
    variables, words = VARIABLES[case]
    workspace = make_yaml()
    check_refused(ask(workspace, "run", "--until-idle", **variables), 2, *words)


RECIPES = {
    "broken": (f"{COLOUR}: {{template_path: x\n", ["workflows.yaml:", "it is not YAML"]),
    "not_a_mapping": ("- wf\n", ["workflows.yaml", "it is not a mapping"]),
    "no_entry": ("wf_new:\n", ["workflows.yaml:1", "wf_new", "template_path"]),
    "no_template_path": (
        "wf_new:\n  description: x\n",
        ["workflows.yaml:1: wf_new: template_path: is missing: write the path of a template"],
    ),
    "unknown_key": (
        "wf_new:\n  template_path: x\n  requried_inputs: [a]\n",
        ["workflows.yaml:3: wf_new: requried_inputs: there is no such key; did you mean required_inputs?"],
    ),
    "twice": (WORKFLOWS + WORKFLOWS, ["workflows.yaml:", "is there twice"]),
}


@COMMANDS
@pytest.mark.parametrize("case", RECIPES)
def test_a_wrong_list_of_workflows_is_one_line_and_no_file_is_called_bad(
    without_server: YamlWorkspace, case: str, command: str
) -> None:
    content, words = RECIPES[case]
    (without_server.root / "config" / "workflows.yaml").write_text(content)
    without_server.drop("knight.yaml", colour_job(1))
    check_refused(ask(without_server, command, "--until-idle"), 2, *words)
    assert without_server.waiting_files() == ["image/knight.yaml"]
    assert not without_server.database.exists()


@pytest.mark.slow
def test_a_list_of_workflows_that_breaks_while_an_agent_runs_is_one_line_and_the_last_good_one_counts(
    start_server: Start, make_yaml: MakeYaml
) -> None:
    workspace = make_yaml(start_server().url)
    agent = workspace.start()
    workspace.drop("before.yaml", colour_job(1))
    workspace.wait_end("before.yaml")
    recipes = workspace.root / "config" / "workflows.yaml"
    recipes.write_text(f"{COLOUR}: [\n")
    for number in range(3):
        workspace.drop(f"meanwhile_{number}.yaml", colour_job(2 + number))
        workspace.wait_end(f"meanwhile_{number}.yaml")
    assert workspace.text().count("What it said before still counts") == 1
    recipes.write_text(WORKFLOWS)
    workspace.drop("after.yaml", colour_job(9))
    workspace.wait_end("after.yaml")
    assert agent.poll() is None


@pytest.mark.parametrize("way", ["config", "variable", "option"])
@COMMANDS
def test_a_database_of_another_kind_is_one_line_without_its_password(
    without_server: YamlWorkspace, way: str, command: str
) -> None:
    url = "mysql://e3:hunter2@db/e3"
    options: list[str] = []
    variables: dict[str, str] = {}
    if way == "config":
        (without_server.root / "config" / "global_config.yaml").write_text(f"database:\n  url: {url}\n")
    elif way == "variable":
        variables["E3_DATABASE__URL"] = url
    else:
        options = ["--database", url]
    without_server.drop("knight.yaml", colour_job(1))
    before = tree(without_server.root)
    answer = ask(without_server, command, "--until-idle", *options, **variables)
    line = check_refused(answer, 1, "mysql://", "no kind of database")
    assert "hunter2" not in line
    assert tree(without_server.root) == before


# Folders that may not be used.


@pytest.fixture
def nobodys() -> Iterator[YamlWorkspace]:
    with workspace_of_nobody(f"http://127.0.0.1:{free_port()}") as workspace:
        yield workspace


@pytest.mark.parametrize(
    ("folder", "mode"),
    some(
        [
            pytest.param("jobs/processing/image", 0o555, id="job-files-read-only"),
            pytest.param("jobs/processing/image", 0o333, id="job-files-write-only"),
            pytest.param("jobs/finished/image", 0o555, id="results-read-only"),
            pytest.param("jobs/finished", 0o000, id="results-closed"),
            pytest.param("database", 0o555, id="database-read-only"),
            pytest.param("database", 0o000, id="database-closed"),
            pytest.param("config", 0o000, id="configuration-closed"),
        ],
        4,
    ),
)
@pytest.mark.parametrize("command", some(["run", "monitor"], 2))
def test_a_folder_that_may_not_be_used_is_one_line_that_names_it(
    nobodys: YamlWorkspace, folder: str, mode: int, command: str
) -> None:
    nobodys.drop("knight.yaml", colour_job(1))
    before = tree(nobodys.root)
    (nobodys.root / folder).chmod(mode)
    answer = nobodys.call(command, "--until-idle", timeout=20)
    check_refused(answer, answer.returncode or 1, str(nobodys.root / folder) if folder != "config" else "config")
    assert tree(nobodys.root) == before


@pytest.mark.slow
def test_a_folder_of_results_that_closes_while_an_agent_runs_is_waited_for() -> None:
    """A job that is done at its server is not lost because its place cannot be written to now."""
    folder = Path("jobs/finished/image")
    server: ServerProcess | None = None
    with workspace_of_nobody() as workspace:
        try:
            server = simulator(workspace.root.parent / "server").start()
            workspace.servers = [server.url]
            workspace.start()
            workspace.drop("before.yaml", colour_job(1))
            workspace.wait_end("before.yaml")
            (workspace.root / folder).chmod(0o555)
            workspace.drop("meanwhile.yaml", colour_job(2))
            wait_told(workspace, "alert.disk")
            assert workspace.job("meanwhile.yaml").status is JobStatus.PROCESSING
            (workspace.root / folder).chmod(0o755)
            assert workspace.wait_end("meanwhile.yaml").run_count == 1
            workspace.wait_for(lambda: not workspace.waiting_files(), "the files to be moved")
        finally:
            if server is not None:
                server.kill()


# Usage.

USAGE: dict[str, tuple[Any, ...]] = {
    "unknown_command": ("rnu",),
    "unknown_option": ("run", "--untilidle"),
    "bad_address": ("run", "--server", "gpu one"),
    "add_nothing": ("add",),
    "retry_nothing": ("retry",),
    "cancel_nothing": ("cancel",),
}


@pytest.mark.parametrize("case", USAGE)
def test_wrong_usage_is_exit_2_without_a_traceback(without_server: YamlWorkspace, case: str) -> None:
    first, *rest = USAGE[case]
    answer = call_e3(first, *rest, cwd=without_server.root)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr
    assert "Traceback" not in answer.stderr
    assert not without_server.database.exists()
