"""A load test reports what is known to be true: by the server's own notes, within 5 percent; counts exactly."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from urllib.parse import urlsplit

import pytest

from comfyui_agent.lab.chaos.bad_servers import with_sleep
from comfyui_agent.lab.fault_proxy import Delay, FaultProxy
from comfyui_agent.lab.load.measurement import percentile
from comfyui_agent.lab.load.plan import Mode
from comfyui_agent.lab.measurement import measured_prompt
from comfyui_agent.sim.process import ServerProcess, simulator
from support.graphs import empty_image
from support.load import Execution, Report, asked, executions, page, press, seedless
from support.shared_servers import HAS_REAL, Servers

WITHIN = 0.05
SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


@pytest.fixture(scope="module")
def varying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose renders take between 30 and 120 milliseconds, by chance."""
    flags = ("--render-seconds", "uniform:0.03:0.12", "--seed", "11")
    server = simulator(tmp_path_factory.mktemp("varying"), *flags).start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    """Three servers that take 0.3 seconds for each picture."""
    folder = tmp_path_factory.mktemp("three")
    servers = [simulator(folder / str(number), "--render-seconds", "0.3") for number in range(3)]
    for server in servers:
        server.launch()
    try:
        for server in servers:
            server.wait_until_up()
        yield servers
    finally:
        for server in servers:
            server.kill()


def known_to(server: ServerProcess, report: Report) -> list[Execution]:
    known = executions(server.url, [row["prompt_id"] for row in report["results"]])
    assert len(known) == len(report["results"])
    return known


def adds_up(report: Report) -> bool:
    summary = report["summary"]
    total = summary["completed"] + summary["failed"] + summary["timeouts"]
    return bool(summary["total_jobs"] == total == len(report["results"]))


@pytest.mark.slow
@pytest.mark.timing
async def test_a_closed_loop_reports_what_the_server_noted(varying: ServerProcess) -> None:
    """With k at work at one server, a prompt is sent when the k-th before it ends."""
    at_once, jobs = 6, 42
    report = await press([varying.url], levels=[at_once], jobs=jobs, seed=1)
    summary, ran = report["summary"], known_to(varying, report)
    assert adds_up(report)
    begin = ran[0].started
    sent = [begin] * at_once + [each.ended for each in ran[:-at_once]]
    durations = [each.ended - moment for each, moment in zip(ran, sent, strict=True)]
    waits = [each.started - moment for each, moment in zip(ran, sent, strict=True)]
    for name, share in SHARES.items():
        assert summary[f"{name}_duration_sec"] == pytest.approx(percentile(durations, share), rel=WITHIN), name
    assert summary["avg_duration_sec"] == pytest.approx(sum(durations) / jobs, rel=WITHIN)
    times = [each.seconds for each in ran]
    assert summary["p50_exec_sec"] == pytest.approx(percentile(times, 0.5), rel=WITHIN)
    assert summary["p95_exec_sec"] == pytest.approx(percentile(times, 0.95), rel=WITHIN)
    assert summary["avg_queue_sec"] == pytest.approx(sum(waits) / jobs, rel=WITHIN)
    per_minute = jobs / (ran[-1].ended - begin) * 60
    assert summary["images_per_minute"] == pytest.approx(per_minute, rel=WITHIN)
    for row in report["results"]:
        parts = row["queue_sec"] + row["exec_sec"]
        assert parts <= row["duration_sec"] + 0.03
        assert row["duration_sec"] - parts < 0.1
    assert summary["cached_jobs"] == 0


@pytest.mark.slow
@pytest.mark.timing
async def test_below_its_capacity_an_open_loop_waits_for_nothing(varying: ServerProcess) -> None:
    report = await press([varying.url], mode=Mode.OPEN, levels=[420.0], jobs=16, even_arrivals=True)
    ran = known_to(varying, report)
    summary = report["summary"]
    assert percentile([row["queue_sec"] for row in report["results"]], 0.5) < 0.03
    gaps = [row["duration_sec"] - row["exec_sec"] for row in report["results"]]
    assert percentile(gaps, 0.5) < 0.03  # the way there and back
    assert summary["avg_exec_sec"] == pytest.approx(sum(each.seconds for each in ran) / len(ran), rel=WITHIN)
    assert report["environment"]["parameters"]["arrivals"] == "even"


@pytest.mark.slow
@pytest.mark.timing
async def test_above_its_capacity_the_wait_is_not_hidden(three: list[ServerProcess]) -> None:
    """A picture takes 0.3 s and one is wanted each 0.15 s: each waits 0.15 s longer than the one before."""
    jobs, gap = 10, 0.15
    report = await press([three[0].url], mode=Mode.OPEN, levels=[60 / gap], jobs=jobs, even_arrivals=True, warmup=0)
    ran = known_to(three[0], report)
    begin = ran[0].started
    durations = [each.ended - (begin + number * gap) for number, each in enumerate(ran)]
    measured = [row["duration_sec"] for row in report["results"]]
    assert measured == pytest.approx(durations, rel=WITHIN, abs=0.04)
    growth = [later - sooner for sooner, later in pairwise(measured)]
    assert sum(growth) / len(growth) == pytest.approx(0.15, rel=0.1)
    assert report["summary"]["p95_duration_sec"] == pytest.approx(percentile(durations, 0.95), rel=WITHIN)
    assert report["summary"]["max_duration_sec"] > 4 * 0.3
    assert [row["index"] for row in report["results"]] == list(range(jobs))


@pytest.mark.timing
@pytest.mark.slow
async def test_the_knee_is_found_where_it_was_put_and_the_servers_add_up(three: list[ServerProcess]) -> None:
    slow = with_sleep(page(), 0.4)  # so that what passes between two prompts, on a busy machine too, weighs little
    report = await press([server.url for server in three], slow, levels=[1, 3, 6], jobs=9, warmup=0)
    summary = report["summary"]
    assert summary["knee"]["level"] == 3
    assert summary["knee"]["unit"] == "prompts at once"
    assert [level["level"] for level in summary["levels"]] == [1, 3, 6]
    for level in summary["levels"]:
        assert level["images_per_minute"] == pytest.approx(60 / 0.7 * min(3, level["level"]), rel=0.1)
    assert {each["server"] for each in summary["servers"]} == {server.url for server in three}
    for key in ("total_jobs", "completed", "failed", "timeouts", "cached_jobs"):
        assert sum(each[key] for each in summary["servers"]) == summary[key]
    assert sum(each["images_per_minute"] for each in summary["servers"]) == pytest.approx(
        summary["images_per_minute"], rel=0.001
    )
    for each, server in zip(summary["servers"], sorted(three, key=lambda one: one.url), strict=True):
        rows = [row["prompt_id"] for row in report["results"] if row["server"] == server.url]
        assert len(executions(server.url, rows)) == each["completed"] == len(rows)
    assert summary["total_jobs"] == 27


@pytest.mark.timing
async def test_slow_transfers_do_not_wait_for_each_other(servers: Servers) -> None:
    """Each reader of a URL waits for its own file: the load generator has no queue of its own."""
    address = urlsplit(servers.url("sim"))
    assert address.hostname
    assert address.port
    async with FaultProxy(address.hostname, address.port) as proxy:
        proxy.inject(Delay(0.4), on="GET /view", times=1000)
        report = await press([proxy.url], levels=[32], jobs=32, warmup=0)
    times = sorted(row["transfer_sec"] for row in report["results"])
    assert times[0] >= 0.4
    assert times[-1] < times[0] + 0.8  # in two pieces; one after another they would take seconds


async def test_errors_are_counted_exactly(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = simulator(tmp_path_factory.mktemp("failing"), "--failure-rate", "0.3", "--seed", "5").start()
    try:
        report = await press([server.url], levels=[4], jobs=60)
        known = {each.prompt_id: each.succeeded for each in known_to(server, report)}
    finally:
        server.kill()
    summary = report["summary"]
    assert adds_up(report)
    assert 0 < summary["failed"] == sum(not fine for fine in known.values()) < 60
    assert summary["completed"] == sum(known.values())
    assert summary["success_rate"] == pytest.approx(summary["completed"] / 60, abs=1e-6)
    for row in report["results"]:
        assert (row["status"] == "completed") == known[row["prompt_id"]]
        assert (row["error"] is None) == known[row["prompt_id"]]
    assert summary["images"] == summary["completed"]


@pytest.mark.slow
@pytest.mark.timing
async def test_a_prompt_that_never_ends_is_a_timeout_and_so_is_what_waits_behind_it(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_prompt, "CANCEL_SECONDS", 0.3)
    server = simulator(tmp_path_factory.mktemp("hanging"), "--hang-after", "3", "--render-seconds", "0.01").start()
    try:
        report = await press([server.url], levels=[1], jobs=4, timeout=0.5)
        assert not asked(server.url, "queue")["queue_pending"]
    finally:
        server.kill()
    assert adds_up(report)
    assert [row["status"] for row in report["results"]] == ["completed", "completed", "timeout", "timeout"]
    for late in report["results"][2:]:
        assert late["duration_sec"] == pytest.approx(0.5, rel=0.2)
        assert "0.5 s" in late["error"]
    assert report["summary"]["timeouts"] == 2
    assert report["summary"]["max_duration_sec"] < 0.5


async def test_answers_of_the_cache_are_found_and_warned_about(servers: Servers) -> None:
    report = await press([servers.url("sim")], page(denoise=0.9), jobs=8, same_seeds=True)
    assert [row["cached"] for row in report["results"]] == [False] + [True] * 7
    assert report["summary"]["cached_jobs"] == 7
    assert any("7 of 8 prompts were answered from the server's cache" in each for each in report["summary"]["warnings"])


async def test_a_node_that_leads_nowhere_hides_no_answer_of_the_cache(servers: Servers) -> None:
    """Servers run what outputs need: the rest is neither run nor cached."""
    graph = {**page(denoise=0.8), "99": empty_image(color=1)}
    report = await press([servers.url("sim")], graph, jobs=4, same_seeds=True)
    assert report["summary"]["cached_jobs"] == 3


@pytest.mark.parametrize("graph", [page(), seedless()], ids=["with a seed", "without any seed"])
async def test_varied_prompts_are_all_rendered(servers: Servers, graph: dict[str, object]) -> None:
    url = servers.url("sim")
    first = await press([url], graph, jobs=10, levels=[4])
    second = await press([url], graph, jobs=10, levels=[4])
    assert first["summary"]["cached_jobs"] == second["summary"]["cached_jobs"] == 0
    ran = executions(url, [row["prompt_id"] for row in [*first["results"], *second["results"]]])
    assert len(ran) == 20
    sampler = "5" if "5" in graph else "1"
    assert not any(sampler in each.cached for each in ran)


async def test_a_seed_that_leads_nowhere_does_not_pass_for_variety(servers: Servers) -> None:
    """The only seed stands in a node that no output needs: the cache would answer every prompt."""
    graph = {**seedless(), "9": empty_image(color=1)}
    graph["9"]["inputs"]["seed"] = 1
    report = await press([servers.url("sim")], graph, jobs=5)
    ran = executions(servers.url("sim"), [row["prompt_id"] for row in report["results"]])
    assert len(ran) == 5
    assert not any("1" in each.cached for each in ran)


async def test_serial_books_have_one_page_at_a_time_and_the_most_within_the_targets_are_reported(
    servers: Servers,
) -> None:
    report = await press([servers.url("sim")], mode=Mode.BOOKS, levels=[1, 3], pages=17, parallel_pages=False)
    summary = report["summary"]
    assert [level["total_jobs"] for level in summary["levels"]] == [17, 51]
    assert summary["concurrent_books"] == 3
    assert summary["mode"] == "books"
    one = [row for row in report["results"] if row["level"] == 1]
    for sooner, later in pairwise(one):
        assert later["seconds"] >= sooner["seconds"] + sooner["duration_sec"]
    moments = [(row["seconds"], 1) for row in report["results"]]
    moments += [(row["seconds"] + row["duration_sec"], -1) for row in report["results"]]
    at_work = most = 0
    for _, change in sorted(moments):
        at_work += change
        most = max(most, at_work)
    assert most <= 3


async def test_a_ramp_ends_early_where_it_is_hopeless(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = simulator(tmp_path_factory.mktemp("hopeless"), "--failure-rate", "1").start()
    try:
        report = await press([server.url], levels=[1, 2, 4], jobs=5)
    finally:
        server.kill()
    assert [level["level"] for level in report["summary"]["levels"]] == [1]
    assert (report["summary"]["failed"], report["summary"]["completed"]) == (5, 0)
    assert report["summary"]["knee"] is None
    assert any("the ramp ended at 1 prompt" in each for each in report["summary"]["warnings"])


@pytest.mark.real_comfyui
@pytest.mark.skipif(not HAS_REAL, reason="needs a real ComfyUI")
@pytest.mark.parametrize("graph", [page(steps=2), seedless()], ids=["sampled", "trivial"])
async def test_a_real_server_is_measured_by_the_same_means(servers: Servers, graph: dict[str, object]) -> None:
    url = servers.url("real")
    report = await press([url], graph, levels=[1, 3], jobs=8)
    assert adds_up(report)
    assert report["summary"]["completed"] == 16
    assert report["summary"]["cached_jobs"] == 0
    ran = executions(url, [row["prompt_id"] for row in report["results"]])
    times = [each.seconds for each in ran]
    assert report["summary"]["avg_exec_sec"] == pytest.approx(sum(times) / 16, rel=WITHIN)
    assert report["environment"]["servers"][0]["comfyui_version"]
    cached = await press([url], graph, jobs=4, same_seeds=True)
    assert cached["summary"]["cached_jobs"] == 3
    beside = {**graph, "99": empty_image(color=1)}
    assert (await press([url], beside, jobs=4, same_seeds=True))["summary"]["cached_jobs"] >= 3
