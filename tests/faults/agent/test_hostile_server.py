"""Row 22: hostile servers and hostile rows. Memory stays bounded, nothing lands outside, and the others go on."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.agents import AgentWorkspace, check_promises
from support.breakage import (
    Make,
    Start,
    by_hand,
    coloured,
    in_thread,
    is_alive,
    peak_megabytes,
    tree,
    until,
    with_sleep_node,
)
from support.hostile import (
    HostileServer,
    Question,
    Reply,
    Writer,
    answer,
    endless,
    hostile_server,
    raw,
    says,
)
from support.sampling import some

JOBS = 8
MOST_MEGABYTES = 400
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
ELSEWHERE = ("Location: http://127.0.0.1:1/elsewhere",)
EVIL = "../../../../escaped.png"
OUTSIDE = "<outside>"


@dataclass
class Liar:
    """Takes every prompt and says at once that it is done: a ComfyUI at first sight."""

    files: list[dict[str, Any]] = field(
        default_factory=lambda: [{"filename": "a.png", "subfolder": "", "type": "output"}]
    )
    graphs: dict[str, Any] = field(default_factory=dict)

    def replies(self) -> dict[str, Reply]:
        return {
            "GET /queue": says({"queue_running": [], "queue_pending": []}),
            "POST /queue": answer(),
            "POST /interrupt": answer(),
            "POST /free": answer(),
            "GET /object_info": says({"SaveImage": {"output_node": True}, "EmptyImage": {"output_node": False}}),
            "GET /system_stats": says({"system": {"comfyui_version": "0.7.0"}, "devices": []}),
            "GET /view": answer(b"GIF89a nothing of the kind", kind="image/png"),
            "HEAD /view": answer(),
            "POST /prompt": self.take,
            "GET /history": self.tell,
        }

    async def take(self, question: Question, writer: Writer) -> None:
        body = json.loads(question.body)
        self.graphs[body["prompt_id"]] = body["prompt"]
        reply = says({"prompt_id": body["prompt_id"], "number": 1, "node_errors": {}})
        await reply(question, writer)

    async def tell(self, question: Question, writer: Writer) -> None:
        prompt_id = question.path.rpartition("/")[2]
        entry = {
            "prompt": [0, prompt_id, self.graphs.get(prompt_id, {}), {}, ["2"]],
            "outputs": {"2": {"images": self.files}},
            "status": {"status_str": "success", "completed": True, "messages": [["execution_success", {}]]},
        }
        await says({prompt_id: entry} if prompt_id in self.graphs else {})(question, writer)

        await asyncio.sleep(0)


def lying(**replies: Reply) -> dict[str, Reply]:
    """A liar, but for these routes: `GET_queue`."""
    return Liar().replies() | {name.replace("_", " /", 1): reply for name, reply in replies.items()}


def redirect() -> Reply:
    return answer(status=302, headers=ELSEWHERE)


NAN = answer('{"queue_running": [[NaN, Infinity, {}, {}, []]], "queue_pending": [-Infinity]}')
DEEP = answer("[" * 100_000)

NEVER_WORKS = [
    pytest.param(lambda: lying(GET_queue=endless(HEAD)), id="endless-queue"),
    pytest.param(lambda: lying(GET_queue=answer("[1, 2")), id="half-a-queue"),
    pytest.param(lambda: lying(GET_queue=NAN), id="nan-queue"),
    pytest.param(lambda: lying(GET_queue=DEEP), id="deep-queue"),
    pytest.param(lambda: lying(GET_queue=redirect()), id="redirected-queue"),
    pytest.param(lambda: lying(GET_queue=raw(b"\x00\xff" * 5000)), id="noise"),
    pytest.param(lambda: lying(POST_prompt=endless(HEAD)), id="endless-answer-to-the-prompt"),
    pytest.param(lambda: lying(POST_prompt=says({"prompt_id": float("nan")})), id="nan-answer-to-the-prompt"),
    pytest.param(lambda: lying(POST_prompt=redirect()), id="redirected-prompt"),
    pytest.param(lambda: lying(POST_prompt=answer("<html>login</html>", status=403)), id="login"),
    pytest.param(lambda: lying(GET_history=endless(HEAD)), id="endless-history"),
    pytest.param(lambda: lying(GET_history=answer("{" * 5000)), id="nonsense-history"),
    pytest.param(lambda: lying(GET_history=says([1, "two", None])), id="history-of-another-shape"),
    pytest.param(lambda: lying(GET_history=redirect()), id="redirected-history"),
]
SPOILS_RESULTS = [
    pytest.param(lambda: lying(), id="not-a-picture"),
    pytest.param(lambda: lying(GET_view=redirect()), id="redirected-file"),
    pytest.param(lambda: lying(GET_view=answer(b"x", length=10**13)), id="ten-terabytes"),
    pytest.param(lambda: lying(GET_view=answer(b"", status=500)), id="broken-file"),
    pytest.param(
        lambda: Liar([{"filename": EVIL, "subfolder": "../../../..", "type": "output"}]).replies(), id="dotted-names"
    ),
    pytest.param(lambda: Liar([{"filename": None, "subfolder": 7, "type": []}]).replies(), id="names-that-are-none"),
]


@pytest.fixture
def nothing_outside(tmp_path: Path) -> Iterator[None]:
    """Nothing lies beside the workspaces and the servers: where evil names point to."""
    yield
    beside = {path.name.partition("-")[0] for path in tmp_path.iterdir()}
    assert beside <= {"workspace", "server", "outside"}


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_outside")
@pytest.mark.parametrize("replies", NEVER_WORKS)
def test_beside_a_server_that_only_pretends_to_work_every_job_is_done_by_the_good_one(
    start_server: Start, make_workspace: Make, replies: Callable[[], dict[str, Reply]]
) -> None:
    good = start_server("--render-seconds", "0.1")
    with in_thread(hostile_server) as hostile:
        hostile.do(lambda it: it.replies.update(replies()))
        workspace = make_workspace(hostile.it.name, good.url, E3_COMFYUI__FAILOVER_SECONDS="1")
        workspace.submit(JOBS)
        agent = workspace.start()
        workspace.wait_for(lambda: workspace.counts().done == JOBS, "every job", timeout=20)
        assert peak_megabytes(agent) < MOST_MEGABYTES
        assert is_alive(agent)
        jobs = workspace.jobs()
        assert {job.server for job in jobs} == {good.url}
        assert [job.retries_attempted for job in jobs] == [0] * JOBS
        _stop(workspace, agent)
    check_promises(workspace, JOBS)


@pytest.mark.usefixtures("nothing_outside")
@pytest.mark.parametrize("replies", some(SPOILS_RESULTS, 6))
def test_results_of_a_hostile_server_fail_with_a_reason_and_the_good_one_goes_on(
    start_server: Start, make_workspace: Make, replies: Callable[[], dict[str, Reply]]
) -> None:
    good = start_server("--render-seconds", "0.1")
    with in_thread(hostile_server) as hostile:
        hostile.do(lambda it: it.replies.update(replies()))
        workspace = make_workspace(hostile.it.name, good.url, E3_COMFYUI__FAILOVER_SECONDS="1")
        workspace.submit(JOBS)
        agent = workspace.start()
        workspace.wait_for(lambda: workspace.counts().is_idle, "every job to end", timeout=20)
        assert peak_megabytes(agent) < MOST_MEGABYTES
        assert is_alive(agent)
        jobs = workspace.jobs()
        assert any(job.status == "done" for job in jobs)
        for job in jobs:
            if job.status == "failed":
                assert job.failure_class == "output"
                assert job.error_trace
                assert job.run_count <= 3
            else:
                assert job.server == good.url
        _stop(workspace, agent)
    check_promises(workspace, JOBS, done=sum(job.status == "done" for job in jobs))


@pytest.mark.usefixtures("nothing_outside")
@pytest.mark.parametrize(
    "replies",
    some(
        [
            pytest.param(lambda: lying(GET_queue=endless(HEAD)), id="endless-queue"),
            pytest.param(lambda: lying(GET_queue=DEEP), id="deep-queue"),
            pytest.param(lambda: lying(POST_prompt=endless(HEAD)), id="endless-answer-to-the-prompt"),
            pytest.param(lambda: lying(GET_history=endless(HEAD)), id="endless-history"),
            pytest.param(lambda: lying(GET_view=redirect()), id="redirected-file"),
            pytest.param(lambda: lying(GET_view=answer(b"x", length=10**13)), id="ten-terabytes"),
            pytest.param(lambda: dict.fromkeys(lying(), redirect()), id="redirects-everywhere"),
        ],
        7,
    ),
)
def test_alone_with_a_hostile_server_the_agent_stays_small_alive_and_honest(
    server_kind: str, make_workspace: Make, replies: Callable[[], dict[str, Reply]]
) -> None:
    if server_kind == "real":
        pytest.skip("no good server is part of this")
    with in_thread(hostile_server) as hostile:
        hostile.do(lambda it: it.replies.update(replies()))
        workspace = make_workspace(hostile.it.name)
        workspace.submit(3)
        agent = workspace.start()
        until(lambda: _looks(hostile.it) >= 6 or workspace.counts().is_idle, "a few looks at the server")
        assert is_alive(agent)
        assert peak_megabytes(agent) < MOST_MEGABYTES
        for job in workspace.jobs():
            assert job.status != "done"
            assert job.status != "failed" or (job.failure_class and job.error_trace)
        assert "Traceback" not in workspace.tail()
        _stop(workspace, agent)
    assert not tree(workspace.root / "jobs")


def _looks(server: HostileServer) -> int:
    return sum(question.route in ("GET /queue", "GET /history", "GET /view") for question in server.questions)


def _stop(workspace: AgentWorkspace, agent: Any) -> None:
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(60) == 143, workspace.tail()


# Rows made by hand.

ROW = """INSERT INTO jobs (config_name, job_type, workflow_id, status, inputs, file_path, output_node, timeout_seconds)
         VALUES (?, ?, ?, 'pending', ?, ?, ?, ?)"""


def row(
    name: Any = "evil.yaml",
    kind: Any = "T2I",
    workflow: Any = "wf",
    inputs: Any = None,
    file_path: Any = None,
    output_node: Any = None,
    timeout_seconds: Any = None,
) -> tuple[Any, ...]:
    return (name, kind, workflow, inputs, file_path, output_node, timeout_seconds)


HOSTILE_ROWS = [
    pytest.param(row(file_path="../../etc/x"), id="file_path-up"),
    pytest.param(row(file_path="jobs/../../x.png"), id="file_path-up-in-the-middle"),
    pytest.param(row(file_path=f"{OUTSIDE}/x.png"), id="file_path-absolute"),
    pytest.param(row(file_path="way-out/x.png"), id="file_path-through-a-link"),
    pytest.param(row(file_path="loop/x.png"), id="file_path-through-a-loop-of-links"),
    pytest.param(row(file_path="a\0b.png"), id="file_path-nul"),
    pytest.param(row(file_path="."), id="file_path-the-workspace-itself"),
    pytest.param(row(file_path="n" * 300 + ".png"), id="file_path-300-letters"),
    pytest.param(row(name="../evil.yaml"), id="config_name-up"),
    pytest.param(row(name="a/b/c.yaml"), id="config_name-with-slashes"),
    pytest.param(row(name="a\0b.yaml"), id="config_name-nul"),
    pytest.param(row(name="n" * 300), id="config_name-300-letters"),
    pytest.param(row(kind="SMELL"), id="job_type-unknown"),
    pytest.param(row(workflow="../x"), id="workflow_id-up"),
    pytest.param(row(workflow="/etc/passwd"), id="workflow_id-absolute"),
    pytest.param(row(workflow="n" * 300), id="workflow_id-300-letters"),
    pytest.param(row(workflow="a\0b"), id="workflow_id-nul"),
    pytest.param(row(workflow="broken"), id="workflow-not-json"),
    pytest.param(row(workflow="listed"), id="workflow-a-list"),
    pytest.param(row(inputs="{not json"), id="inputs-not-json"),
    pytest.param(row(inputs="[1, 2]"), id="inputs-a-list"),
    pytest.param(row(inputs="[" * 100_000), id="inputs-deep"),
    pytest.param(row(inputs='{"99.text": 1}'), id="inputs-without-a-place"),
    pytest.param(row(inputs='{"1.width": NaN}'), id="inputs-nan"),
    pytest.param(row(inputs=b"\xff\xfe"), id="inputs-bytes"),
    pytest.param(row(output_node="99"), id="output_node-unknown"),
]


def prepare_by_hand(workspace: AgentWorkspace, tmp_path: Path) -> None:
    """A workspace with a workflow, with links that lead out, and with some good jobs."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.json").write_text(json.dumps(coloured(3)))
    workflows = workspace.root / "workflows"
    workflows.mkdir(parents=True)
    (workflows / "wf.json").write_text(json.dumps(coloured(2)))
    (workflows / "broken.json").write_text("{not json")
    (workflows / "listed.json").write_text("[1, 2]")
    (workspace.root / "x.json").write_text(json.dumps(coloured(3)))
    (workspace.root / "way-out").symlink_to(outside)
    (workspace.root / "loop").symlink_to(workspace.root / "loop")
    workspace.submit(4)


@pytest.mark.usefixtures("nothing_outside")
@pytest.mark.parametrize("values", some(HOSTILE_ROWS, 13))
def test_a_hostile_row_fails_with_a_reason_and_the_others_go_on(
    start_server: Start, make_workspace: Make, tmp_path: Path, values: tuple[Any, ...]
) -> None:
    workspace = make_workspace(start_server().url)
    prepare_by_hand(workspace, tmp_path)
    outside = tmp_path / "outside"
    by_hand(workspace, ROW, *(str(outside / "x.png") if value == f"{OUTSIDE}/x.png" else value for value in values))
    agent = workspace.start()
    until(lambda: _states(workspace)[:4] == ["done"] * 4, "the others", 15)
    until(lambda: _states(workspace)[4] in ("failed", "done"), "the end of the hostile one", 15)
    assert is_alive(agent)
    ((status, kind, trace),) = by_hand(workspace, "SELECT status, failure_class, error_trace FROM jobs WHERE id = 5")
    assert status == "failed"
    assert kind
    assert trace
    assert "Traceback" not in workspace.tail()
    _stop(workspace, agent)
    assert tree(outside).keys() == {"x.json"}
    assert len(tree(workspace.root / "jobs")) == 4


def _states(workspace: AgentWorkspace) -> list[str]:
    return [status for (status,) in by_hand(workspace, "SELECT status FROM jobs ORDER BY id")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "column", some(["timeout_seconds", "retry_limit", "priority", "retries_attempted", "strikes"], 3)
)
def test_a_number_that_is_a_word_harms_no_other_job_and_its_own_ends(
    start_server: Start, make_workspace: Make, tmp_path: Path, server_kind: str, column: str
) -> None:
    workspace = make_workspace(with_sleep_node(start_server(), server_kind).url)
    prepare_by_hand(workspace, tmp_path)
    (workspace.root / "workflows" / "wf.json").write_text(json.dumps(coloured(2, seconds=1.5)))
    by_hand(workspace, ROW, *row())
    by_hand(workspace, f"UPDATE jobs SET {column} = 'soon' WHERE id = 5")
    agent = workspace.start()
    until(lambda: not {"pending", "processing"} & set(_states(workspace)), "the end of all", 15)
    assert _states(workspace)[:4] == ["done"] * 4
    assert is_alive(agent)
    assert "Traceback" not in workspace.tail()
    _stop(workspace, agent)


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_outside")
@pytest.mark.parametrize("column", some(["config_name", "workflow_id", "inputs", "metadata", "error_trace"], 3))
def test_text_that_is_no_text_harms_no_other_job(
    start_server: Start, make_workspace: Make, tmp_path: Path, column: str
) -> None:
    """Bytes that are not UTF-8 in a column of text, as a broken import leaves them."""
    workspace = make_workspace(start_server().url)
    prepare_by_hand(workspace, tmp_path)
    by_hand(workspace, ROW, *row())
    by_hand(workspace, f"UPDATE jobs SET {column} = CAST(x'6162ff' AS TEXT) WHERE id = 5")
    agent = workspace.start()
    until(lambda: _states(workspace)[:4] == ["done"] * 4, "the others", 15)
    assert is_alive(agent)
    assert "Traceback" not in workspace.tail()
    _stop(workspace, agent)
