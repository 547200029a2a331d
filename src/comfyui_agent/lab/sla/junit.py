"""A review as JUnit XML, which CI systems read."""

from __future__ import annotations

import re
from typing import Any

from jinja2 import Environment, PackageLoader

from comfyui_agent.domain.texts import printable
from comfyui_agent.lab.reports.sla import TargetVerdict
from comfyui_agent.lab.sla.review import Review

NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_junit(review: Review, *, strict: bool) -> str:
    """One test case a target. A missed one fails; one that was not measured is skipped, with `strict` it fails."""
    loader = PackageLoader("comfyui_agent.lab.sla")
    templates = Environment(
        loader=loader, autoescape=True, trim_blocks=True, keep_trailing_newline=True, finalize=_clean
    )
    missed, open_ones = (
        [finding for finding in review.findings if finding.verdict is verdict]
        for verdict in (TargetVerdict.MISSED, TargetVerdict.NOT_MEASURED)
    )
    return templates.get_template("junit.xml").render(
        findings=review.findings,
        reports=review.reports,
        failed=missed + open_ones if strict else missed,
        skipped=[] if strict else open_ones,
        notes=[f"{report.name}: {note}" for report in review.reports for note in report.notes],
    )


def _clean(value: Any) -> str:
    """A text that XML can hold: control characters are shown, not written."""
    return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", printable(str(value)))
