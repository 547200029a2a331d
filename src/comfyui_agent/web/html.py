"""Rendering screens to HTML with Jinja2, and the filters that the templates use."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from comfyui_agent import __version__
from comfyui_agent.comfy.address import name_of
from comfyui_agent.domain.badges import BADGES, SERVER_MARKS, WITHOUT_ATTENTION
from comfyui_agent.domain.pace import duration_of, rate_of
from comfyui_agent.domain.texts import attention, counted, whole
from comfyui_agent.domain.texts import parsed as parsed_json
from comfyui_agent.web.cell_facts import Facts
from comfyui_agent.web.outputs import version_of
from comfyui_agent.web.screens import Fragment, Screen, View

HERE = Path(__file__).parent
TEMPLATES = HERE / "templates"
ASSETS = HERE / "assets"
LONGEST_JSON = 20_000
LONGEST_VALUE = 600
UNITS = ("bytes", "KB", "MB", "GB", "TB")


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        auto_reload=False,
    )
    badges = [*BADGES.items(), *WITHOUT_ATTENTION.items()]
    made.globals |= {
        "unknown": Facts(),
        "asset": asset,
        "version": __version__,
        "badges": {str(state): badge for state, badge in badges},
        "server_marks": SERVER_MARKS,
        "lasted": lasted,
        "now": lambda: datetime.now(timezone.utc).isoformat(),
    }
    filters = (ago, attention, counted, error_message, first_line, json_text, number, seconds, shown)
    made.filters |= {each.__name__: each for each in filters}
    made.filters |= {"bytes": in_bytes, "rate": rate_of, "result_version": version_of, "server_name": name_of}
    return made


def render_page(screen: Screen, view: View) -> str:
    parts = {each.id: each for each in with_sentence(screen)}

    def fragment(name: str) -> Markup:
        return Markup(render_fragment(parts[name], view))  # noqa: S704 - a rendered template

    values = {
        **screen.values,
        **_who(view),
        "title": screen.title,
        "sentence": screen.sentence,
        "section": screen.section,
        "fragment": fragment,
        "fragments": list(parts),
    }
    return environment().get_template(screen.template).render(values)


def render_fragment(fragment: Fragment, view: View) -> str:
    values = {**fragment.values, **_who(view), "id": fragment.id}
    template = fragment.template or f"{fragment.id.replace('-', '_')}.html"
    return environment().get_template(template).render(values).strip()


def with_sentence(screen: Screen) -> tuple[Fragment, ...]:
    """The fragments of a screen, with its sentence as the first."""
    return (Fragment("sentence", {"sentence": screen.sentence}), *screen.fragments)


def _who(view: View) -> dict[str, Any]:
    return {"view": view, "role": view.role.value, "is_admin": view.is_admin, "can_change": view.can_change}


@cache
def asset(name: str) -> str:
    """The address of an asset. It has a hash of the file, so that browsers can cache it for ever."""
    digest = hashlib.sha256((ASSETS / name).read_bytes()).hexdigest()
    return f"/assets/{name}?v={digest[:12]}"


def ago(moment: str | datetime | None, *, clock: bool = False) -> Markup:
    """A time as people say it, with the exact one as its tooltip. A script keeps it up to date.

    With `clock` the time of day: a script shows that of the viewer's clock.
    """
    when = parsed(moment)
    if when is None:
        return Markup("")
    if clock:
        return Markup('<time datetime="{}" data-clock>{}</time>').format(when.isoformat(), when.strftime("%H:%M UTC"))
    text = since((datetime.now(timezone.utc) - when).total_seconds())
    exact = when.strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(when.isoformat(), exact, text)


def since(passed: float) -> str:
    """Without seconds, because a fragment that differs is sent again. A script shows the seconds."""
    if passed < 60:
        return "just now"
    if passed < 3600:
        return f"{int(passed // 60)} min ago"
    if passed < 48 * 3600:
        return f"{int(passed // 3600)} h ago"
    return f"{int(passed // 86400)} days ago"


def parsed(moment: str | datetime | None) -> datetime | None:
    """Read a time as the database writes it. None if it is none."""
    try:
        found = datetime.fromisoformat(str(moment).replace("Z", "+00:00")) if moment else None
    except ValueError:
        return None
    return found.replace(tzinfo=timezone.utc) if found is not None and found.tzinfo is None else found


def lasted(begin: str | None, end: str | None, word: str = "") -> str:
    """`Waited 12.0 s`. Empty if a moment is not known."""
    began, ended = parsed(begin), parsed(end)
    if began is None or ended is None or ended < began:
        return ""
    return f"{word} {seconds((ended - began).total_seconds())}".strip()


def seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1f} s" if value < 60 else duration_of(value)


def in_bytes(value: float | None) -> str:
    if value is None:
        return ""
    unit = 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.{int(unit > 1)}f} {UNITS[unit]}"


def json_text(value: Any) -> str:
    """A value as indented JSON, cut where it is very long."""
    return whole(json.dumps(value, indent=2, ensure_ascii=False, default=str), LONGEST_JSON)


def shown(value: Any) -> str:
    """A value as people write it."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def first_line(text: str | None) -> str:
    return (text or "").partition("\n")[0]


def error_message(error: str | None) -> str:
    """The message in the recorded error of an attempt."""
    found = parsed_json(error)
    return str(found.get("message", "") if isinstance(found, dict) else found or "")
