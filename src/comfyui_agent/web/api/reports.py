"""/api/v1/reports: what the reliability lab has written."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Path
from fastapi.responses import FileResponse, Response

from comfyui_agent.access.problem import Problem
from comfyui_agent.pools import FILES
from comfyui_agent.web.api.models import ReportList, ReportShown
from comfyui_agent.web.api.parameters import PREFIX, Here, User
from comfyui_agent.web.api.responses import FileAnswer, fields_of
from comfyui_agent.web.openapi import file_answers, problems
from comfyui_agent.web.reports import NoReport, find_reports, report_file

router = APIRouter(prefix=f"{PREFIX}/reports", tags=["reports"])
POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Reports have their style inside, and no scripts."""


@router.get("", response_model=ReportList, responses=problems())
async def list_reports(context: Here, _: User) -> Any:
    """Load tests, profiles and chaos runs of this workspace, the newest first."""
    found = await FILES.run(find_reports, context.workspace)
    shown = [
        fields_of(ReportShown, each) | {"kind": each.kind.label, "url": f"{PREFIX}/reports/{quote(each.path)}"}
        for each in found
    ]
    return {"reports": shown}


@router.get("/{path:path}", response_class=FileResponse, responses=file_answers("text/html", "application/json"))
async def report(context: Here, _: User, path: Annotated[str, Path(min_length=1, max_length=1000)]) -> Response:
    """One report, as its page or as JSON."""
    try:
        file = await FILES.run(report_file, context.workspace, path)
    except NoReport as error:
        raise Problem(404, str(error), f"See {PREFIX}/reports.") from None
    kind = "text/html; charset=utf-8" if file.suffix == ".html" else "application/json"
    return FileAnswer(file, media_type=kind, headers={"Content-Security-Policy": POLICY})
