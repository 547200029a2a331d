"""Graphics cards are looked at beside the work: through NVML on this machine, else through the server's own word."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from comfyui_agent.comfy.address import ServerAddress
from comfyui_agent.comfy.answers import Device, SystemStats
from comfyui_agent.comfy.errors import Unreachable
from comfyui_agent.lab.measurement.machine import GpuTrace, driver_version, is_local

MB = 1024 * 1024
RTX = "NVIDIA GeForce RTX 5060 Ti"
EVERY = 0.02


class NVMLError(Exception):
    """As pynvml has it."""


@dataclass
class Card:
    """One card; what is None, it does not tell."""

    name: str = RTX
    used_mb: int | None = 1000
    util: int | None = 50
    uuid: str = "GPU-1"


@dataclass
class Library:
    """What `import pynvml` gives."""

    cards: list[Card] = field(default_factory=list)
    has_driver: bool = True
    opened: int = 0
    NVMLError: type[Exception] = NVMLError

    def nvmlInit(self) -> None:
        if not self.has_driver:
            raise NVMLError("no driver")
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def _say(self, answer: Any) -> Any:
        if not self.opened or answer is None:
            raise NVMLError("closed, or not supported")
        return answer

    def nvmlSystemGetDriverVersion(self) -> Any:
        return self._say(b"535.12")

    def nvmlDeviceGetCount(self) -> Any:
        return self._say(len(self.cards))

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return self._say(self.cards[index])

    def nvmlDeviceGetName(self, card: Card) -> Any:
        return self._say(card.name)

    def nvmlDeviceGetUUID(self, card: Card) -> Any:
        return self._say(card.uuid)

    def nvmlDeviceGetUtilizationRates(self, card: Card) -> Any:
        return self._say(None if card.util is None else SimpleNamespace(gpu=card.util, memory=1))

    def nvmlDeviceGetMemoryInfo(self, card: Card) -> Any:
        used = card.used_mb
        return self._say(None if used is None else SimpleNamespace(used=used * MB, free=(16_000 - used) * MB))


@dataclass
class NewerLibrary(Library):
    """One that knows what the driver reserves for itself."""

    nvmlMemory_v2: int = 2  # noqa: N815

    def nvmlDeviceGetMemoryInfo(self, card: Card, version: int | None = None) -> Any:
        found = super().nvmlDeviceGetMemoryInfo(card)
        return SimpleNamespace(used=found.used - 600 * MB, free=found.free) if version == 2 else found


@dataclass
class Server:
    """A server that says something about itself, slowly if need be, or cannot be asked."""

    url: str = "http://127.0.0.1:8188"
    device: str = f"cuda:0 {RTX} : native"
    kind: str = "cuda"
    used_mb: int = 3000
    is_down: bool = False
    seconds: float = 0.0

    @property
    def address(self) -> ServerAddress:
        return ServerAddress.parse(self.url)

    async def system_stats(self) -> SystemStats:
        await asyncio.sleep(self.seconds)
        if self.is_down:
            raise Unreachable("it is away")
        total = 16_000 * MB
        devices = (Device(self.device, self.kind, total, total - self.used_mb * MB),)
        return SystemStats("0.7.0", "3.11", "2.9", "linux", 1, 1, devices)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Have `import pynvml` give this; None for a machine that has no such package."""
    return lambda library: monkeypatch.setitem(sys.modules, "pynvml", library)


async def trace_of(
    *servers: Server, until: Callable[[GpuTrace], bool] = lambda trace: len(trace.samples) > 3
) -> GpuTrace:
    deadline = time.monotonic() + 10
    async with GpuTrace(servers, every=EVERY) as trace:  # type: ignore[arg-type]
        while not until(trace):
            assert time.monotonic() < deadline
            await asyncio.sleep(EVERY)
    return trace


async def test_a_card_of_this_machine_is_asked_through_nvml(install: Callable[[Any], None]) -> None:
    library = Library([Card(used_mb=1234, util=97)])
    install(library)
    trace = await trace_of(Server())
    assert trace.source == "nvml"
    assert {(each.gpu_util, each.gpu_mem_mb, each.server) for each in trace.samples} == {
        (97, 1234, "http://127.0.0.1:8188")
    }
    assert library.opened == 0


async def test_memory_is_reported_as_nvidia_smi_does_without_what_the_driver_reserves(
    install: Callable[[Any], None],
) -> None:
    install(NewerLibrary([Card(used_mb=1600)]))
    assert {each.gpu_mem_mb for each in (await trace_of(Server())).samples} == {1000}


@pytest.mark.parametrize(
    "server",
    [
        Server("http://gpu1:8188"),
        Server(device="cuda:0 E3 simulated GPU"),
        Server(device=f"cuda:0 {RTX} SUPER : native"),
    ],
    ids=["elsewhere", "simulated", "another card"],
)
async def test_any_other_card_is_asked_of_its_server(install: Callable[[Any], None], server: Server) -> None:
    install(Library([Card()]))
    trace = await trace_of(server)
    assert trace.source == "system_stats"
    assert {(each.gpu_util, each.gpu_mem_mb) for each in trace.samples} == {(None, 3000)}


@pytest.mark.parametrize("library", [None, Library([Card()], has_driver=False), Library([])])
async def test_without_a_driver_or_the_package_the_server_is_asked(
    install: Callable[[Any], None], library: Any
) -> None:
    install(library)
    trace = await trace_of(Server())
    assert trace.source == "system_stats"
    assert driver_version() == ("535.12" if library and library.has_driver else None)


async def test_among_cards_of_one_name_it_is_the_one_with_the_servers_memory(install: Callable[[Any], None]) -> None:
    install(Library([Card(used_mb=9000, uuid="GPU-1"), Card(used_mb=3100, uuid="GPU-2")]))
    trace = await trace_of(Server(used_mb=3000))
    assert {each.gpu_mem_mb for each in trace.samples} == {3100}


async def test_a_card_that_two_servers_share_is_looked_at_once(install: Callable[[Any], None]) -> None:
    install(Library([Card()]))
    trace = await trace_of(Server("http://127.0.0.1:1"), Server("http://127.0.0.1:2"))
    assert {each.server for each in trace.samples} == {"http://127.0.0.1:1"}


@pytest.mark.parametrize(("card", "seen"), [(Card(util=None), (None, 1000)), (Card(used_mb=None), (50, None))])
async def test_what_a_card_does_not_tell_is_not_known(
    install: Callable[[Any], None], card: Card, seen: tuple[int | None, int | None]
) -> None:
    install(Library([card]))
    assert {(each.gpu_util, each.gpu_mem_mb) for each in (await trace_of(Server())).samples} == {seen}


async def test_a_server_that_is_away_or_slow_holds_up_no_other(install: Callable[[Any], None]) -> None:
    install(None)
    away, slow, quick = Server("http://a:1", is_down=True), Server("http://b:1", seconds=60), Server("http://c:1")
    began = time.monotonic()
    trace = await trace_of(away, slow, quick)
    assert {each.server for each in trace.samples} == {"http://c:1"}
    assert time.monotonic() - began < 5


async def test_a_server_that_comes_back_is_seen_again(install: Callable[[Any], None]) -> None:
    install(None)
    server = Server(is_down=True)
    async with GpuTrace([server], every=EVERY) as trace:  # type: ignore[list-item]
        await asyncio.sleep(5 * EVERY)
        assert (trace.samples, trace.source) == ([], "none")
        server.is_down = False
        deadline = time.monotonic() + 10
        while not trace.samples:
            assert time.monotonic() < deadline
            await asyncio.sleep(EVERY)


async def test_main_memory_is_no_card(install: Callable[[Any], None]) -> None:
    install(Library([Card()]))
    asked: list[float] = []

    class OnTheProcessor(Server):
        async def system_stats(self) -> SystemStats:
            asked.append(time.monotonic())
            return await super().system_stats()

    trace = await trace_of(
        OnTheProcessor(device="cpu", kind="cpu"), until=lambda trace: trace.clock.seconds > 10 * EVERY
    )
    assert (trace.samples, trace.source) == ([], "none")
    assert len(asked) == 2  # once to find the card, once to see that there is none: it is not asked for ever


async def test_a_sample_says_when_it_was_taken(install: Callable[[Any], None]) -> None:
    install(None)
    before = datetime.now(timezone.utc)
    trace = await trace_of(Server())
    first, *_, last = trace.samples
    assert last.seconds > first.seconds >= 0
    moment = datetime.fromisoformat(first.ts.replace("Z", "+00:00"))
    assert first.ts.endswith("Z")
    assert -0.01 < (moment - before).total_seconds() < 10
    assert first.as_json() == {
        "ts": first.ts,
        "seconds": first.seconds,
        "gpu_util": None,
        "gpu_mem_mb": 3000,
        "server": "http://127.0.0.1:8188",
    }


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8188", True),
        ("http://127.8.8.8:1", True),
        ("http://[::1]:8188", True),
        ("http://localhost:8188", True),
        ("http://192.168.1.5:8188", False),
        ("https://gpu1.example.com", False),
    ],
)
def test_which_addresses_are_of_this_machine(url: str, expected: bool) -> None:
    assert is_local(ServerAddress.parse(url)) is expected
