"""Losing packets with tc: put on, taken off whatever happens, and never half done in silence."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from comfyui_agent.lab.chaos.bad_servers import lossy
from comfyui_agent.lab.chaos.findings import Skipped


class FakeTc:
    """A `tc` on the search path that notes what it is told, and obeys as it is set up to."""

    def __init__(self, folder: Path) -> None:
        self._notes = folder / "notes"
        self._program = folder / "tc"
        self.behave()

    def behave(self, before: str = "", after: str = "exit 0", lost: int = 7) -> None:
        shown = f'test "$1" = -s && echo "qdisc netem 8001: root limit 1000 loss 10% Sent 9 bytes (dropped {lost})"'
        self._program.write_text(f'#!/bin/sh\n{before}\necho "$@" >> {self._notes}\n{shown}\n{after}\n')
        self._program.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self._notes.read_text().splitlines() if self._notes.exists() else []


ADD, DELETE = "qdisc add dev eth0 root netem loss 10%", "qdisc del dev eth0 root"
SHOW = "-s qdisc show dev eth0"


@pytest.fixture
def tc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeTc:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return FakeTc(tmp_path)


async def test_the_loss_lasts_as_long_as_the_block(tc: FakeTc) -> None:
    async with lossy("eth0", 0.1):
        assert tc.calls == [ADD]
    assert tc.calls == [ADD, SHOW, DELETE]


async def test_a_device_that_lost_nothing_proves_nothing(tc: FakeTc) -> None:
    tc.behave(lost=0)
    with pytest.raises(Skipped, match="no packet was lost at eth0"):
        async with lossy("eth0", 0.1):
            pass
    assert tc.calls == [ADD, SHOW, DELETE]


async def test_it_is_taken_off_after_an_error(tc: FakeTc) -> None:
    with pytest.raises(ZeroDivisionError):
        async with lossy("eth0", 0.1):
            raise ZeroDivisionError
    assert tc.calls == [ADD, DELETE]


async def test_it_is_taken_off_when_the_run_is_cancelled(tc: FakeTc) -> None:
    is_lossy = asyncio.Event()

    async def lose() -> None:
        async with lossy("eth0", 0.1):
            is_lossy.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(lose())
    await is_lossy.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tc.calls == [ADD, DELETE]


async def test_it_is_taken_off_when_the_run_is_cancelled_while_it_is_put_on(tc: FakeTc, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    tc.behave(before=f"touch {begun}; sleep 0.3")

    async def lose() -> None:
        async with lossy("eth0", 0.1):
            await asyncio.sleep(60)

    task = asyncio.create_task(lose())
    for _ in range(500):
        if begun.exists():
            break
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for is_so in (lambda: tc.calls, lambda: tc.calls[-1:] == [DELETE]):  # what was begun may end later
        for _ in range(300):
            if is_so():
                break
            await asyncio.sleep(0.01)
    assert tc.calls in ([], [ADD, DELETE])


async def test_a_refusal_says_what_to_do(tc: FakeTc) -> None:
    tc.behave(after='echo "RTNETLINK answers: Operation not permitted" >&2; exit 2')
    with pytest.raises(Skipped, match=r"^tc refused \(RTNETLINK answers: Operation not permitted\): run as root, or"):
        async with lossy("eth0", 0.1):
            pytest.fail("nothing is lost")
    assert tc.calls == [ADD]


async def test_a_refusal_without_words_is_told_by_its_code(tc: FakeTc) -> None:
    tc.behave(after="exit 7")
    with pytest.raises(Skipped, match=r"exit 7"):
        async with lossy("eth0", 0.1):
            pytest.fail("nothing is lost")


async def test_a_loss_that_cannot_be_taken_off_is_said_with_the_command_that_does(tc: FakeTc) -> None:
    with pytest.raises(RuntimeError, match=r"tc qdisc del dev eth0 root"):
        async with lossy("eth0", 0.1):
            tc.behave(after='echo "No such device" >&2; exit 2')


async def test_without_tc_it_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Skipped, match="install iproute2"):
        async with lossy("eth0", 0.1):
            pytest.fail("nothing is lost")


@pytest.mark.parametrize("device", ["", "-force", "eth0 root", "eth0;reboot", "../lo", "a" * 16, "eth0\n"])
async def test_what_is_no_device_never_reaches_tc(tc: FakeTc, device: str) -> None:
    with pytest.raises(Skipped, match="is no network device"):
        async with lossy(device, 0.1):
            pytest.fail("nothing is lost")
    assert tc.calls == []
