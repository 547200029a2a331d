"""Row 27: an object store that fails, is slow, cuts uploads or is full. Results wait, say so, and are kept once."""

from __future__ import annotations

import io
import signal
from collections.abc import Callable, Iterator

import pytest
from PIL import Image

from comfyui_agent.domain.states import JobStatus
from comfyui_agent.lab.fault_proxy import Delay, Fault, Refuse
from support.agents import AgentWorkspace, renders, sized_picture, start_changed
from support.breakage import told, wait_told
from support.object_stores import KEY, SECRET, STORES, Bucket, CutUpload, Status
from support.sampling import some
from support.servers import ServerProcess
from support.stores import in_the_shell
from support.threaded_proxy import ThreadedProxy, threaded_proxy

Start = Callable[..., ServerProcess]
Make = Callable[..., AgentWorkspace]

JOBS = 6


@pytest.fixture
def proxy(moto: Bucket) -> Iterator[ThreadedProxy]:
    with threaded_proxy(moto.endpoint) as proxy:
        yield proxy


def check_kept_once(workspace: AgentWorkspace, bucket: Bucket, count: int) -> None:
    """Every job is done once, its object is whole and its own, and there is nothing else."""
    jobs, objects = workspace.jobs(), bucket.objects()
    assert [job.status for job in jobs] == [JobStatus.DONE] * count, [job.error_trace for job in jobs]
    assert [job.run_count for job in jobs] == [1] * count
    assert sorted(objects) == sorted(name for job in jobs for name in job.outputs)
    for job in jobs:
        with Image.open(io.BytesIO(objects[job.outputs[0]])) as picture:
            assert picture.convert("RGB").getpixel((0, 0)) == (0, 0, int(job.config_name[4:9]) + 1)
    assert list((workspace.root / "database" / "cache" / "staged").glob("*")) == []
    text = workspace.log.read_text() + str(in_the_shell(workspace.database, "SELECT * FROM jobs"))
    assert KEY not in text
    assert SECRET not in text


@pytest.mark.parametrize("trouble", some(["full", "5xx", "away", "cut upload"], 4))
def test_results_wait_for_the_store_and_say_so(
    start_server: Start, make_workspace: Make, moto: Bucket, proxy: ThreadedProxy, trouble: str
) -> None:
    server = start_server()
    workspace = make_workspace(server.url, **moto.through(proxy.url).settings())
    faults: dict[str, Fault] = {
        "5xx": Status("503 Service Unavailable"),
        "full": Status("507 Insufficient Storage"),
        "away": Refuse(),
        "cut upload": CutUpload(proxy),
    }
    proxy.inject(faults[trouble], "job_", None)
    workspace.submit(JOBS)
    agent = workspace.start("--until-idle")
    wait_told(workspace, "alert.disk")
    (alert,) = told(workspace, "alert.disk")
    assert alert["message"].startswith(f"results cannot be kept in {moto.url}/jobs/finished/image: the object store ")
    assert "\n" not in alert["message"]
    assert workspace.counts().done == 0
    proxy.heal()
    assert agent.wait(60) == 0, workspace.tail()
    check_kept_once(workspace, moto, JOBS)
    assert renders([server.folder]) == JOBS


@pytest.mark.slow
def test_a_slow_store_only_takes_its_time(
    start_server: Start, make_workspace: Make, moto: Bucket, proxy: ThreadedProxy
) -> None:
    server = start_server()
    proxy.inject(Delay(0.4), "job_", None)
    workspace = make_workspace(server.url, E3_LEASE_SECONDS="2", **moto.through(proxy.url).settings())
    graph = sized_picture()
    graph["1"]["inputs"] |= {"batch_size": 4, "color": 1}
    workspace.submit(1, graph)
    assert workspace.finish() == 0, workspace.tail()
    outputs = workspace.jobs()[0].outputs
    assert (len(outputs), sorted(moto.objects())) == (4, sorted(outputs))
    assert told(workspace, "alert.disk") == []


@pytest.mark.parametrize("moment", some(["uploaded", "claimed", "named"], 3))
def test_what_a_dead_agent_uploaded_is_adopted(
    start_server: Start, make_workspace: Make, bucket: Bucket, moment: str
) -> None:
    server = start_server()
    workspace = make_workspace(server.url, **bucket.settings())
    workspace.submit(1)
    agent = start_changed(workspace, f"die:{moment}")
    assert agent.wait(60) == -signal.SIGKILL, workspace.tail()
    assert len(bucket.objects()) == (moment != "claimed")
    assert workspace.finish() == 0, workspace.tail()
    check_kept_once(workspace, bucket, 1)
    assert renders([server.folder]) == 1


def test_what_two_dead_agents_left_is_removed(start_server: Start, make_workspace: Make, rclone: Bucket) -> None:
    """The second one dies between `done` and removing what the first had uploaded under another name."""
    server = start_server()
    workspace = make_workspace(server.url, **rclone.settings())
    workspace.submit(1)
    for moment, objects in (("named", 1), ("done", 2)):
        agent = start_changed(workspace, f"die:{moment}")
        assert agent.wait(60) == -signal.SIGKILL, workspace.tail()
        assert len(rclone.objects()) == objects
    assert workspace.finish() == 0, workspace.tail()
    check_kept_once(workspace, rclone, 1)


@pytest.mark.parametrize("bucket", some(STORES[::-1], 2), indirect=True)
def test_a_worker_that_lost_its_lease_leaves_nothing(start_server: Start, make_workspace: Make, bucket: Bucket) -> None:
    """It is stopped in the middle of its upload, which arrives after another agent has taken over and is done."""
    server = start_server()
    with threaded_proxy(bucket.endpoint) as proxy:
        settings = bucket.through(proxy.url).settings()
        workspace = make_workspace(server.url, E3_LEASE_SECONDS="2", **settings)
        upload = f"PUT /{bucket.url.removeprefix('s3://')}/jobs"
        held = proxy.hold(upload)
        workspace.submit(1)
        first = workspace.start("--until-idle")
        workspace.wait_for(lambda: held.waiting == 1, "an upload")
        first.send_signal(signal.SIGSTOP)
        second = workspace.start("--until-idle", **bucket.environment)
        workspace.wait_done(1)
        assert second.wait(60) == 0, workspace.tail()  # it has cleaned up
        proxy.release(held)
        workspace.wait_for(lambda: bucket.kind == "moto" or len(bucket.objects()) == 2, "the late upload")
        first.send_signal(signal.SIGCONT)
        assert first.wait(60) == 0, workspace.tail()
    check_kept_once(workspace, bucket, 1)
