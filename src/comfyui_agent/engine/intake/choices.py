"""What servers say about node classes, and choices that none offers, found before anything is queued."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any

from comfyui_agent.batches.sweep_request import Keep
from comfyui_agent.clock import now
from comfyui_agent.comfy.address import address_of
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.config.workflows import Workflow
from comfyui_agent.domain.binding import Place, Unbindable
from comfyui_agent.domain.needs import AUTO, Offered
from comfyui_agent.domain.node_classes import takes_file
from comfyui_agent.domain.value_types import BadValue, Kind, first_fit, text_of, type_of
from comfyui_agent.domain.values import Token
from comfyui_agent.engine.intake.input_files import name_of

PATIENCE = 1.0
"""So long a submission waits for servers; what they say later counts for the next one."""
REMEMBERED_SECONDS = 60.0
SILENT_SECONDS = 30.0
"""A server that did not answer is not asked again for so long."""
QUICK = Limits(connect_seconds=2.0, answer_seconds=5.0, retries=0)
PATIENT = Limits(connect_seconds=2.0, answer_seconds=10.0, retries=0)
NOT_ASKED = (float("-inf"), None)
FILE = re.compile(r"[/\\]|\]\s*$|\.[A-Za-z]\w{1,11}$")
"""A value that names a file, such as a model: it may be put there before the job runs."""

Definitions = Mapping[str, Mapping[str, Any]]
Ask = Callable[[str, Collection[str]], Coroutine[Any, Any, Definitions | None]]


async def ask_server(url: str, classes: Collection[str], limits: Limits = QUICK) -> Definitions | None:
    """Definitions of the node classes that a server has; None if it does not answer."""
    from comfyui_agent.comfy.client import ComfyClient  # for those who need it
    from comfyui_agent.comfy.errors import ComfyError

    try:
        async with ComfyClient(url, limits=limits, listen=False) as client:
            found = {name: await client.definitions.of(name) for name in sorted(classes) if name}
    except (ComfyError, ValueError):  # silent, or no address at all
        return None
    return {name: definition for name, definition in found.items() if definition is not None}


async def ask_definitions(
    urls: Sequence[str], classes: Collection[str]
) -> tuple[dict[str, list[Mapping[str, Any]]], dict[str, Definitions | None]]:
    """Definitions of node classes, of every server that has them, and what each server answered."""
    found_at = await asyncio.gather(*(ask_server(url, classes, PATIENT) for url in urls))
    answers = dict(zip(urls, found_at, strict=True))
    found: dict[str, list[Mapping[str, Any]]] = {}
    for answer in answers.values():
        for name, definition in (answer or {}).items():
            found.setdefault(name, []).append(definition)
    return found, answers


class Choices:
    """What each server offers, asked class by class and remembered for a while. Call it from any thread."""

    def __init__(self, urls: Callable[[], Sequence[str]], ask: Ask = ask_server) -> None:
        self._urls = urls
        self._ask = ask
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[float, Mapping[str, Any] | None]] = {}
        self._silent_until: dict[str, float] = {}

    def problems(self, workflow: Workflow, values: Mapping[str, Any]) -> dict[str, str]:
        """What is wrong with each value that no known server offers at its place.

        Not looked at: `auto`, names of files, links, and inputs of which not every server gives a list of choices.
        """
        places = {where: workflow.places.all[where] for where in values}
        looked_at = {where: place for where, place in places.items() if _is_choice(place, values[where])}
        self._learn({place.class_type for place in looked_at.values() if place.class_type})
        found = {}
        for where, place in looked_at.items():
            types = [type_of(None, each, place.name) for each in self._definitions_of(place.class_type)]
            if types and all(each.kind is Kind.COMBO and each.choices for each in types):
                try:
                    first_fit(Token(text_of(values[where]), is_plain=True), types, where)
                except BadValue as error:
                    found[where] = str(error)
        return found

    def offers(self, classes: Collection[str]) -> dict[str, Offered]:
        """What each server that has answered offers of these node classes, by its address."""
        self._learn(classes)
        answers: dict[str, Definitions | None] = {}
        with self._lock:
            for url in self._urls():
                found = {name: self._known.get((url, name), NOT_ASKED) for name in classes}
                is_known = NOT_ASKED not in found.values()
                answers[url] = {name: each for name, (_, each) in found.items() if each} if is_known else None
        return offers_of(answers)

    def _definitions_of(self, class_type: str) -> list[Mapping[str, Any]]:
        """What the servers that have the node say about it."""
        with self._lock:
            found = [self._known.get((url, class_type), NOT_ASKED)[1] for url in self._urls()]
        return [each for each in found if each is not None]

    def _learn(self, classes: Collection[str]) -> None:
        """Ask all servers at once for definitions that are unknown or old, and wait a moment for the answers."""
        moment = now()
        asking = []
        with self._lock:
            for url in self._urls():
                asked_at = {name: self._known.get((url, name), NOT_ASKED)[0] for name in classes}
                wanted = [name for name, at in asked_at.items() if moment - at > REMEMBERED_SECONDS]
                if wanted and moment >= self._silent_until.get(url, moment):
                    self._silent_until[url] = moment + SILENT_SECONDS  # until it has answered
                    asking.append(threading.Thread(target=self._hear, args=(url, wanted), daemon=True))
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join(max(0.0, moment + PATIENCE - now()))

    def _hear(self, url: str, classes: Collection[str]) -> None:
        answer = asyncio.run(self._ask(url, classes))
        if answer is None:
            return
        with self._lock:
            self._silent_until.pop(url, None)
            for name in classes:
                self._known[url, name] = now(), answer.get(name)


def offers_of(answers: Mapping[str, Definitions | None]) -> dict[str, Offered]:
    """What each server that answered offers, by its address."""
    from comfyui_agent.comfy.definitions import facts_of  # for those who need it

    return {
        address_of(url): {name: facts_of(each).choices for name, each in answer.items()}
        for url, answer in answers.items()
        if answer is not None
    }


def checking(keep: Keep, choices: Choices) -> Keep:
    """Keep pictures, and refuse choices that no server offers; Unbindable names all that is wrong."""

    def check(workflow: Workflow, values: Mapping[str, Any]) -> dict[str, str]:
        problems = {name_of(workflow, where): text for where, text in choices.problems(workflow, values).items()}
        try:
            kept = keep(workflow, values)
        except Unbindable as error:
            raise Unbindable(problems | error.problems) from None
        if problems:
            raise Unbindable(problems)
        return kept

    return check


def _is_choice(place: Place, value: Any) -> bool:
    if not isinstance(value, (str, int, float)) or value == AUTO or takes_file(place.class_type, place.name):
        return False
    return not (isinstance(value, str) and FILE.search(value))
