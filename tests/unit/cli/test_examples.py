"""Every example of the help is a command line that E3 understands."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import typer

from comfyui_agent.cli.app import app
from comfyui_agent.cli.lazy_group import read_examples


@pytest.mark.parametrize(("path", "text"), read_examples().items(), ids=lambda each: each.split("\n")[0])
def test_its_options_are_those_of_the_command(path: str, text: str) -> None:
    command: Any = typer.main.get_command(app)
    for name in path.split()[1:]:
        command = command.commands[name]
    known = {option for parameter in command.params for option in parameter.opts}
    lines = [line for line in text.splitlines() if line and not line.startswith(" ")]
    assert lines
    for line in lines:
        assert re.search(rf"\b{path.removesuffix(' ls')}\b", line)
        words = shlex.split(line.partition("e3 ")[2])
        assert {word for word in words if word.startswith("-")} <= known
