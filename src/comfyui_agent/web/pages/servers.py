"""The page of the servers: state, memory, queue, and our jobs there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from comfyui_agent.domain.badges import SERVER_MARKS
from comfyui_agent.domain.server_states import STUCK_REMEDY
from comfyui_agent.domain.texts import counted
from comfyui_agent.engine.live_runs import LiveRun
from comfyui_agent.engine.server_reports import ServerReport
from comfyui_agent.web.screens import Fragment, Screen, View


@dataclass(frozen=True)
class Memory:
    """Memory of a device, in bytes."""

    name: str
    used: int
    total: int


@dataclass(frozen=True)
class ServerCard:
    """A server as the page shows it."""

    report: ServerReport
    mark: str
    words: str
    memories: tuple[Memory, ...]
    runs: tuple[LiveRun, ...]


async def build(view: View) -> Screen:
    fragment = await servers_part(view)
    sentence = await _sentence(view, fragment.values["servers"])
    return Screen("servers.html", "Servers", sentence, (fragment,), {}, "servers")


async def servers_part(view: View) -> Fragment:
    """All servers as a live fragment, also for the page of admins."""
    live = await view.context.fleet.live()
    cards = [card_of(report, live) for report in await view.context.fleet.reports()]
    return Fragment("servers", {"servers": cards, "stuck_remedy": STUCK_REMEDY}, template="servers_list.html")


def card_of(report: ServerReport, live: Sequence[LiveRun]) -> ServerCard:
    runs = tuple(run for run in live if run.server == report.url)
    words = {
        "up": "Working" if runs else "Up, idle" if not report.running else "Up",
        "down": "Down",
        "stuck": f"Stuck since {(report.stuck_since or '')[:19]} UTC",
        "paused": "Paused: it gets nothing new",
        "draining": "Draining: what runs there finishes",
        "drained": "Drained: nothing of ours is there",
    }
    return ServerCard(report, SERVER_MARKS[report.state], words[report.state], _memories(report), runs)


def _memories(report: ServerReport) -> tuple[Memory, ...]:
    """Video memory of each device, or main memory if there is none."""
    stats = report.stats
    if stats is None:
        return ()
    found = [(device.name, device.vram_free, device.vram_total) for device in stats.devices]
    found = [each for each in found if each[2] > 0] or [("Main memory", stats.ram_free, stats.ram_total)]
    return tuple(Memory(name, max(0, total - free), total) for name, free, total in found if total > 0)


async def _sentence(view: View, cards: Sequence[ServerCard]) -> str:
    if not cards:
        return "No server is known."
    up = [card for card in cards if card.report.state not in ("down", "stuck")]
    stuck = sum(card.report.state == "stuck" for card in cards)
    out = [card for card in up if card.report.out_of_work is not None]
    at_work = sum(run.stage == "rendering" for card in cards for run in card.runs)
    text = f"{len(up)} of {counted(len(cards), 'server')} up"
    text += f", {stuck} stuck" if stuck else ""
    text += f", {len(out)} out of work" if out else ""
    text += f", {counted(at_work, 'picture')} rendering" if at_work else ", nothing renders"
    if not await view.context.fleet.agents() and not any(card.runs for card in cards):
        text += ". No agent works here: start one with e3 run"
    return f"{text}."
