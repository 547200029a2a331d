"""What people write where a value is to be drawn, or taken from elsewhere.

`seed: random` (or -1) is a seed, `{red|green} fox` one of the words, `__animals__` a line of `wildcards/animals.txt`,
`${name}` the value of another input, and `prompt_file: knight.txt` a text of the folder `prompts`. A backslash before
`{`, `|`, `}` or `__` takes their meaning away. One number decides all of it: with the same one, the same is drawn.
"""

from __future__ import annotations

import random
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from comfyui_agent.domain.binding import TOKEN, Places, Recipe, Unbindable
from comfyui_agent.domain.prompts import SEED_INPUTS
from comfyui_agent.domain.texts import suggest
from comfyui_agent.domain.value_types import text_of
from comfyui_agent.domain.values import SEED_LIMIT

RANDOM_WORD, OF_FILE = "random", "_file"
CHOICE = re.compile(r"(?<!\\)\{((?:\\[{|}]|[^{}])*?(?<!\\)\|(?:\\[{|}]|[^{}])*)(?<!\\)\}")
"""The innermost choice: braces without others in them, and with a bar."""
BAR = re.compile(r"(?<!\\)\|")
WILDCARD = re.compile(r"(?<!\\)__([A-Za-z0-9][\w./ -]*?)__")
ESCAPED = re.compile(r"\\([{|}]|__)")
LONGEST = 64_000
DEEPEST = 20


class TextFiles(Protocol):
    """The texts of a workspace. ValueError says why one cannot be had."""

    def wildcard(self, name: str) -> Sequence[str]: ...

    def prompt(self, path: str) -> str: ...


class NoFiles:
    """Where a workflow belongs to no workspace."""

    def wildcard(self, name: str) -> Sequence[str]:
        raise ValueError(f"__{name}__ is no wildcard: there is no workspace with files for them")

    def prompt(self, path: str) -> str:
        raise ValueError(f"{path[:200]!r} is no file of a workspace")


@dataclass(frozen=True)
class Drawn:
    """Inputs as they are rendered."""

    values: dict[str, Any]
    recipe: Recipe
    """With defaults that are drawn, too."""
    seed: int | str
    written: dict[str, Any] = field(default_factory=dict)
    """What stood there, of the inputs that were drawn."""

    def as_json(self) -> dict[str, Any]:
        """For the record of a job. Empty if nothing was drawn."""
        return {"drawn": {"seed": self.seed, "written": self.written}} if self.written else {}


def new_seed() -> int:
    return secrets.randbelow(SEED_LIMIT)


def is_open(value: Any) -> bool:
    """Whether a text leaves something to be drawn or filled in."""
    return isinstance(value, str) and any(each.search(value) for each in (TOKEN, CHOICE, WILDCARD))


def draw(places: Places, recipe: Recipe, given: Mapping[str, Any], files: TextFiles, seed: int | str) -> Drawn:
    """Draw what inputs leave open. Unbindable names everything that cannot be drawn."""
    return _Drawing(places, recipe, given, files, seed).all()


def check_wildcard(name: str, files: TextFiles, sound: set[str], within: tuple[str, ...] = ()) -> None:
    """ValueError if a line of a wildcard leads nowhere, or in a circle. `sound`: those that need no other look."""
    inner = _entered(name, within)
    if name not in sound:
        for found in sorted({found[1] for line in files.wildcard(name) for found in WILDCARD.finditer(line)}):
            check_wildcard(found, files, sound, inner)
        sound.add(name)


def _entered(name: str, within: tuple[str, ...]) -> tuple[str, ...]:
    if name in within:
        raise ValueError(f"the wildcard __{name}__ includes itself: {' → '.join([*within, name])}")
    if len(within) >= DEEPEST:
        raise ValueError(f"wildcards are more than {DEEPEST} deep: {' → '.join(within[:3])} → …")
    return (*within, name)


class _Drawing:
    def __init__(
        self, places: Places, recipe: Recipe, given: Mapping[str, Any], files: TextFiles, seed: int | str
    ) -> None:
        self._places, self._recipe, self._files, self._seed = places, recipe, files, seed
        self._given = dict(given)
        self._others = {**recipe.defaults, **given}
        self._problems: dict[str, str] = {}
        self._done: dict[str, Any] = {}

    def all(self) -> Drawn:
        written = self._read_files()
        for name, value in self._others.items():
            try:
                if self._value(name, ()) != value:
                    written.setdefault(name, value)
            except ValueError as error:
                self._problems[name] = str(error)
        if self._problems:
            raise Unbindable(self._problems, {})
        defaults = {name: self._done.get(name, value) for name, value in self._recipe.defaults.items()}
        values = {name: self._done[name] for name in self._given}
        recipe = self._recipe if defaults == self._recipe.defaults else replace(self._recipe, defaults=defaults)
        return Drawn(values, recipe, self._seed, written)

    def _read_files(self) -> dict[str, Any]:
        """Put texts in place of the files that are named. Returns those names, by input."""
        read: dict[str, Any] = {}
        for key, path in list(self._given.items()):
            name = key.removesuffix(OF_FILE)
            if name in ("", key) or self._reached(key) or not self._reached(name):
                continue
            del self._given[key], self._others[key]
            try:
                if name in self._given:
                    raise ValueError(f"{name} is given, too: write one of them")
                self._given[name] = self._others[name] = self._files.prompt(str(path))
                read[name] = self._given[name]
            except ValueError as error:
                self._problems[key] = str(error)
        return read

    def _reached(self, name: str) -> list[str]:
        return self._places.reached(name, self._recipe)

    def _value(self, name: str, within: tuple[str, ...]) -> Any:
        if name in within:
            raise ValueError(f"{' → '.join([*within[within.index(name) :], name])} stand for each other")
        if name not in self._done:
            value = self._others[name]
            if str(value).strip().lower() in (RANDOM_WORD, "-1") and self._is_seed(name):
                value = self._dice(name).randrange(SEED_LIMIT)
            elif isinstance(value, str):
                value = self._text(value, name, (*within, name))
            self._done[name] = value
        return self._done[name]

    def _is_seed(self, name: str) -> bool:
        return any(self._places.all[place].name in SEED_INPUTS for place in self._reached(name))

    def _dice(self, name: str) -> random.Random:
        """Each input has dice of its own: another input more does not change what this one gets."""
        return random.Random(f"{self._seed}/{name}")

    def _text(self, text: str, name: str, within: tuple[str, ...]) -> str:
        if not is_open(text):
            return text
        text = TOKEN.sub(lambda token: self._named(token[1], within), text)
        text = self._drawn(text, self._dice(name), ())
        return ESCAPED.sub(r"\1", text)

    def _named(self, name: str | None, within: tuple[str, ...]) -> str:
        if name is None:
            return "${"
        if name in self._others:
            return text_of(self._value(name, within))
        places = [self._places.all[place] for place in self._reached(name)]
        reached = {place.place for place in places}
        for other in self._others:
            if not reached.isdisjoint(self._reached(other)):
                return text_of(self._value(other, within))
        if places and not places[0].is_link and not TOKEN.search(str(places[0].value)):
            return text_of(places[0].value)
        hint = suggest(name[:60], self._others)
        end = "" if hint.endswith("?") else "."
        raise ValueError(f"${{{name}}} names no other input; {hint}{end} For the text itself: $${{{name}}}")

    def _drawn(self, text: str, dice: random.Random, within: tuple[str, ...]) -> str:
        text = WILDCARD.sub(lambda found: self._line(found[1], dice, within), text)
        while True:
            text, count = CHOICE.subn(lambda found: dice.choice(BAR.split(found[1])), text)
            if len(text) > LONGEST:
                raise ValueError(f"what is drawn is longer than {LONGEST:,} characters")
            if not count:
                return text

    def _line(self, name: str, dice: random.Random, within: tuple[str, ...]) -> str:
        return self._drawn(dice.choice(self._files.wildcard(name)), dice, _entered(name, within))
