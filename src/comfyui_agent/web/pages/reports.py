"""The page with all reports of the lab."""

from __future__ import annotations

from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.reports.environment import ReportKind
from comfyui_agent.pools import FILES
from comfyui_agent.web.reports import find_reports
from comfyui_agent.web.screens import Fragment, NoScreen, Screen, View

KINDS = {"load": ReportKind.LOAD, "chaos": ReportKind.CHAOS, "profile": ReportKind.PROFILE}


async def build(view: View) -> Screen:
    asked = view.asked("kind")
    if asked and asked not in KINDS:
        raise NoScreen(f"there are no reports of the kind {asked[:40]!r}: see /reports")
    every = await FILES.run(find_reports, view.context.workspace)
    found = [report for report in every if not asked or report.kind is KINDS[asked]]
    failed = sum(report.needs_attention for report in found)
    sentence = f"{counted(len(found), 'report')}, {failed or 'none'} need{'s' if failed < 2 else ''} attention."
    fragment = Fragment("reports", {"reports": found}, tuple(found), "reports_list.html")
    return Screen("reports.html", "Reports", sentence if found else "No reports yet.", (fragment,), section="reports")
