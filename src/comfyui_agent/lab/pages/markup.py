"""Markup that is safe by default: a text is escaped unless it is known to be markup already."""

from __future__ import annotations

import html

from comfyui_agent.domain.texts import printable, whole

LONGEST_TEXT = 2_000


class Html(str):
    """Text that is markup: every text from outside in it was escaped."""

    __slots__ = ()


def escaped(text: str) -> Html:
    """A text as text of a page, between tags or in quotes; markup stays as it is."""
    return text if isinstance(text, Html) else Html(html.escape(printable(whole(text, LONGEST_TEXT)), quote=True))


def element(tag: str, *content: str, **attributes: str | float | None) -> Html:
    """An element with its content. `class_` names a class, `text_anchor` is text-anchor; None leaves one out."""
    opening = "".join(_attribute(name, value) for name, value in attributes.items() if value is not None)
    return Html(f"<{tag}{opening}>{joined(*content)}</{tag}>")


def shape(tag: str, **attributes: str | float | None) -> Html:
    """A drawn element without content."""
    return Html(
        f"<{tag}{''.join(_attribute(name, value) for name, value in attributes.items() if value is not None)}/>"
    )


def label(kind: str, text: str, x: float, y: float, anchor: str | None = None) -> Html:
    """A text in a drawing, of a class of the style sheet; it starts at x unless anchored at its middle or end."""
    return element("text", text, class_=kind, x=x, y=y, text_anchor=anchor)


def joined(*pieces: str) -> Html:
    """Pieces of markup and texts, one behind the other."""
    return Html("".join(escaped(piece) for piece in pieces))


def place(value: float) -> str:
    """A coordinate as drawings write it: a tenth of a pixel is exact enough."""
    digits = f"{value:.1f}".removesuffix(".0")
    return "0" if digits == "-0" else digits


def _attribute(name: str, value: str | float) -> str:
    text = escaped(value) if isinstance(value, str) else place(value)
    return f' {name.rstrip("_").replace("_", "-")}="{text}"'
