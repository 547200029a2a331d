"""A review as JUnit XML, which CI systems read."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from comfyui_agent.domain.texts import printable
from comfyui_agent.lab.reports.sla import Finding, TargetVerdict
from comfyui_agent.lab.sla.review import Review

SUITE = "e3 sla"
NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_junit(review: Review, *, strict: bool) -> str:
    """One test case a target. A missed one fails; one that was not measured is skipped, with `strict` it fails."""
    cases = [_case(finding, strict=strict) for finding in review.findings]
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": "0",
        "skipped": str(sum(case.find("skipped") is not None for case in cases)),
        "time": "0",
    }
    suites = ElementTree.Element("testsuites", {"name": SUITE, **counts})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": SUITE, **counts})
    properties = ElementTree.SubElement(suite, "properties")
    for number, each in enumerate(review.reports, 1):
        name = f"report.{number}"
        ElementTree.SubElement(properties, "property", {"name": name, "value": _clean(each.path)})
    suite.extend(cases)
    notes = [f"{each.name}: {note}" for each in review.reports for note in each.notes]
    if notes:
        ElementTree.SubElement(suite, "system-out").text = _clean("\n".join(notes))
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _case(finding: Finding, *, strict: bool) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase", {"classname": SUITE.replace(" ", "."), "name": str(finding.target), "time": "0"}
    )
    message = _clean(f"{finding.target.label}: wanted {finding.wanted_text}, measured {finding.measured_text}")
    is_missed = finding.verdict is TargetVerdict.MISSED or (strict and finding.verdict is TargetVerdict.NOT_MEASURED)
    if is_missed:
        failure = ElementTree.SubElement(case, "failure", {"message": message, "type": str(finding.verdict)})
        failure.text = _clean(finding.sentence)
    elif finding.verdict is TargetVerdict.NOT_MEASURED:
        ElementTree.SubElement(case, "skipped", {"message": _clean(finding.sentence)})
    else:
        ElementTree.SubElement(case, "system-out").text = f"{message}. {_clean(finding.sentence)}"
    return case


def _clean(text: str) -> str:
    """A text that XML can hold: control characters are shown, not written."""
    return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", printable(text))
