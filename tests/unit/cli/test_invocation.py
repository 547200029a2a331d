"""Commands on a workspace: the options they get, and how what is refused is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from comfyui_agent.batches.name_lookup import NotFound
from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.config.validation import Complaint, Complaints
from comfyui_agent.store.errors import DatabaseAway
from comfyui_agent.usecases.errors import Invalid, NotAllowed, NotPossible

MISTAKES = Complaints([Complaint("book.yaml:3", "title", "is too long"), Complaint("book.yaml:5", "pages", "is empty")])


def command(error: Exception | None = None, code: int | None = None) -> typer.Typer:
    app = typer.Typer(add_completion=False)

    @app.command()
    @workspace_command()
    async def work(call: Invocation, times: Annotated[int, typer.Option("--times")] = 1) -> int | None:
        """Work."""
        if error is not None:
            raise error
        call.show({"times": times, "root": str(call.workspace.root)}, f"{times} in {call.workspace.root}")
        return code

    return app


def test_it_has_its_own_options_then_those_of_the_workspace() -> None:
    shown = typer.main.get_command(command())
    assert [each.name for each in shown.params] == ["times", "workspace", "config", "database", "as_json"]
    assert shown.help == "Work."


def test_it_answers_with_a_line_or_with_json(tmp_path: Path) -> None:
    line = CliRunner().invoke(command(), ["--times", "2", "-C", str(tmp_path)])
    assert (line.exit_code, line.stdout) == (0, f"2 in {tmp_path}\n")
    assert '"times": 1' in CliRunner().invoke(command(), ["-C", str(tmp_path), "--json"]).stdout


def test_what_it_returns_is_its_exit_code(tmp_path: Path) -> None:
    assert CliRunner().invoke(command(code=10), ["-C", str(tmp_path)]).exit_code == 10


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (
            NotPossible("it is done", "Choose another.", line="it is done: see e3 show"),
            1,
            ["e3: it is done: see e3 show"],
        ),
        (NotAllowed("it is not yours", "Ask."), 1, ["e3: it is not yours"]),
        (NotFound("there is no job 'x'", "see e3 queue ls"), 1, ["e3: there is no job 'x': see e3 queue ls"]),
        (DatabaseAway("the database is locked"), 1, ["e3: the database is locked"]),
        (Invalid("workflows.yaml is wrong"), 2, ["e3: workflows.yaml is wrong"]),
        (MISTAKES, 2, ["e3: book.yaml:3: title: is too long", "    book.yaml:5: pages: is empty"]),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_what_is_refused_is_shown_on_stderr(tmp_path: Path, error: Exception, code: int, lines: list[str]) -> None:
    answer = CliRunner().invoke(command(error), ["-C", str(tmp_path)])
    assert (answer.exit_code, answer.stdout, answer.stderr.splitlines()) == (code, "", lines)
