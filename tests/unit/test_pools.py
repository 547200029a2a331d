"""Pools: work beside the event loop that keeps neither other work nor the end of the process waiting."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from comfyui_agent import pools
from comfyui_agent.pools import Pool
from support.web import eventually


async def test_work_runs_beside_the_loop_and_its_result_or_error_comes_back() -> None:
    pool = Pool("test", 2)
    assert await pool.run(threading.get_ident) != threading.get_ident()
    assert await pool.run(int, "7") == 7
    with pytest.raises(ValueError, match="invalid literal"):
        await pool.run(int, "x")


async def test_at_most_so_many_work_at_once_and_the_rest_in_its_order() -> None:
    pool, may, order = Pool("test", 2), threading.Event(), []
    busy = [asyncio.ensure_future(pool.run(may.wait, 10)) for _ in range(2)]
    rest = [asyncio.ensure_future(pool.run(order.append, number)) for number in range(5)]
    await eventually(lambda: pool._calls.qsize() == 5, "two at work")
    assert (pool._threads, order) == (2, [])
    may.set()
    await asyncio.gather(*busy, *rest)
    assert sorted(order) == [0, 1, 2, 3, 4]


async def test_work_that_has_not_begun_is_dropped_with_its_waiter() -> None:
    pool, may, done = Pool("test", 1), threading.Event(), []
    busy = asyncio.ensure_future(pool.run(may.wait, 10))
    dropped = asyncio.ensure_future(pool.run(done.append, 1))
    await asyncio.sleep(0)
    dropped.cancel()
    await asyncio.wait({dropped})
    may.set()
    await busy
    await pool.run(int)
    assert done == []


async def test_threads_without_work_end_and_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "IDLE_SECONDS", 0.01)
    pool = Pool("test", 3)
    await asyncio.gather(*(pool.run(time.sleep, 0.01) for _ in range(3)))
    await eventually(lambda: pool._threads == 0, "the end of the threads")
    assert await pool.run(int) == 0


LEAVING = """
import asyncio, time
from comfyui_agent.cli.signals import run_until_signal
from comfyui_agent.pools import Pool

def busy():
    while True:
        pass

async def work():
    pool = Pool("test", 2)
    kept = [asyncio.ensure_future(pool.run(busy)), asyncio.ensure_future(pool.run(time.sleep, 600))]
    await asyncio.sleep(0)
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)  # as a library does it, to look up a name
    print("begun", flush=True)
    await asyncio.Event().wait()

run_until_signal(work())
"""


@pytest.mark.timing
def test_neither_a_busy_thread_nor_one_that_hangs_keeps_the_process_alive() -> None:
    with subprocess.Popen([sys.executable, "-c", LEAVING], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            process.terminate()
            began = time.monotonic()
            assert process.wait(60) == 143
            assert time.monotonic() - began < 2.0
        finally:
            process.kill()
