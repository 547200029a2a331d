"""Dashboard, alert rules and documentation speak of metrics that exist, and lead somewhere."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from comfyui_agent.comfy.answers import SystemStats
from comfyui_agent.config.settings import Settings
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.engine.server_reports import ServerReport
from comfyui_agent.fleet.launch.state import SlotFolder, SlotState
from comfyui_agent.store.needs import LoadedSet
from comfyui_agent.store.overview import Gauges
from comfyui_agent.store.records import Counts
from comfyui_agent.usecases.servers import ProcessReport
from comfyui_agent.web.metrics import Metrics
from support.stores import ScriptedStore

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "infra/observability"
OPERATIONS = ROOT / "docs/operations.md"
PAGES = ["docs/operations.md", "infra/observability/README.md", "infra/README.md"]
SLA = Settings().sla

DASHBOARD: dict[str, Any] = json.loads((FOLDER / "grafana_dashboard.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "alert_rules.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
PROMETHEUS: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))

TARGET_LABELS = {"job", "instance"}
"""What Prometheus itself puts on every series."""
WORDS = frozenset({"by", "without", "on", "ignoring", "and", "or", "unless"})
FUNCTIONS = frozenset({"sum", "rate", "increase", "histogram_quantile", "absent"})
GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^()]*)\)")
SELECTOR = re.compile(r"([A-Za-z_:][\w:]*)\s*\{([^{}]*)\}")
MATCHER = re.compile(r'\s*(\w+)\s*(?:=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*')
IDENTIFIER = re.compile(r"(?<![\w:$.])[A-Za-z_:][\w:]*")
PAIRS = {")": "(", "}": "{", "]": "["}


class Quiet(ScriptedStore):
    """A database without jobs, and one server."""

    async def read_gauges(self) -> Gauges:
        return Gauges(Counts(), 0.0, {}, 0, {"http://gpu:8188": LoadedSet("http://gpu:8188", None, None, 0, 0, 0)})

    async def reports(self) -> list[ServerReport]:
        stats = SystemStats("0.7.0", "3.12", "2.8", "posix", 0, 0, ())
        return [ServerReport("gpu:8188", "http://gpu:8188", stats, 0, 0)]

    async def processes(self) -> dict[str, ProcessReport]:
        return {"http://gpu:8188": ProcessReport(SlotFolder(Path("gpu0-1")), SlotState(card="gpu0"), 4711)}

    async def agents(self) -> int:
        return 1


async def _exposed() -> str:
    metrics = Metrics(Quiet(), Quiet())
    facts: dict[str, Any] = {"workflow_id": "portrait", "server": "http://gpu:8188"}
    metrics.counters.count(Event(EventName.JOB_STARTED, wait_sec=1.0, **facts))
    metrics.counters.count(Event(EventName.SERVER_RESTARTED, **facts))
    metrics.counters.count(Event(EventName.JOB_DONE, duration_sec=1.0, **facts))
    return (await metrics.exposition()).decode()


EXPOSED = list(text_string_to_metric_families(asyncio.run(_exposed())))
SERIES = {sample.name: set(sample.labels) for family in EXPOSED for sample in family.samples}
VALUES = {
    (sample.name, label): {each.labels[label] for each in family.samples if each.name == sample.name}
    for family in EXPOSED
    for sample in family.samples
    for label in sample.labels
}
SHOWN = {family.name + ("_total" if family.type == "counter" else ""): family for family in EXPOSED}
"""Each metric by the name that people know it by."""


def faults_in(expression: str) -> Iterator[str]:
    """What is wrong with a question to Prometheus, as far as it can be seen without one."""
    yield from _unbalanced(expression)
    rest = re.sub(r'"(?:[^"\\]|\\.)*"', lambda found: '"' + "_" * (len(found[0]) - 2) + '"', expression)
    asked: set[str] = set()
    for name, inside in SELECTOR.findall(expression):
        asked |= SERIES.get(name, set())
        for part in _parts(inside):
            matcher = MATCHER.fullmatch(part)
            if matcher is None:
                yield f"{part!r} is no matcher"
            elif matcher[1] not in SERIES.get(name, set()) | TARGET_LABELS:
                yield f"{name} has no label {matcher[1]}"
            else:
                yield from _impossible(name, matcher[1], matcher[2])
    rest = re.sub(r"\{[^{}]*\}", "", rest)
    for labels in GROUPING.findall(rest):
        known = {label for each in SERIES.values() for label in each} | TARGET_LABELS
        yield from (f"no metric has a label {label}" for label in re.findall(r"\w+", labels) if label not in known)
    rest = re.sub(r"\[[^\]]*\]", "", GROUPING.sub("", rest))
    for name in IDENTIFIER.findall(rest):
        if name not in WORDS | FUNCTIONS | set(SERIES) | {"up"}:
            yield f"there is no {name}"
    yield from (f"{name} is a counter, and only its increase means something" for name in _bare_counters(expression))


def _unbalanced(expression: str) -> Iterator[str]:
    open_ones: list[str] = []
    for letter in re.sub(r'"(?:[^"\\]|\\.)*"', "", expression):
        if letter in PAIRS.values():
            open_ones.append(letter)
        elif letter in PAIRS and (not open_ones or open_ones.pop() != PAIRS[letter]):
            yield f"a {letter} too many"
    yield from (f"a {letter} stays open" for letter in open_ones)


def _parts(inside: str) -> list[str]:
    return [part for part in re.findall(r'(?:[^,"]|"(?:[^"\\]|\\.)*")+', inside) if part.strip()]


def _impossible(name: str, label: str, wanted: str) -> Iterator[str]:
    """A value that a metric with foreseen values never has. Servers, workflows and edges are not foreseen."""
    if "$" in wanted or label not in ("state", "status", "outcome", "class", "alert", "kind"):
        return
    possible = VALUES.get((name, label), set())
    yield from (f"{name} never has {label}={each}" for each in wanted.split("|") if each not in possible)


def _bare_counters(expression: str) -> Iterator[str]:
    for name in SERIES:
        if name.endswith(("_total", "_count", "_sum", "_bucket")):
            yield from (name for _ in re.finditer(rf"\b{name}\b(\{{[^{{}}]*\}})?(?!\s*[\[{{\w])", expression))


def questions() -> Iterator[tuple[str, str]]:
    for rule in RULES:
        yield f"rule {rule['alert']}", rule["expr"]
    for panel in PANELS:
        for target in panel["targets"]:
            yield f"panel {panel['title']}", target["expr"]
    for block in re.findall(r"```promql\n(.*?)```", OPERATIONS.read_text(encoding="utf-8"), re.DOTALL):
        for line in block.splitlines():
            yield "docs", line.partition("#")[0].strip()


def test_every_question_is_about_metrics_and_labels_that_exist() -> None:
    for where, expression in questions():
        assert list(faults_in(expression)) == [], (where, expression)


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("sum(e3_jobs", "a ( stays open"),
        ("e3_agents)", "a ) too many"),
        ("e3_job", "there is no e3_job"),
        ("summe(e3_jobs)", "there is no summe"),
        ('e3_jobs{status="done"}', "e3_jobs has no label status"),
        ('e3_jobs{state="finished"}', "e3_jobs never has state=finished"),
        ("e3_jobs{state}", "'state' is no matcher"),
        ("sum by (colour) (e3_jobs)", "no metric has a label colour"),
        ("sum(e3_failures_total)", "e3_failures_total is a counter, and only its increase means something"),
        ('e3_failures_total{class="oom"} > 0', "e3_failures_total is a counter, and only its increase means something"),
        ("rate(e3_job_duration_seconds[5m])", "there is no e3_job_duration_seconds"),
    ],
)
def test_the_checker_finds_faults(expression: str, fault: str) -> None:
    assert fault in list(faults_in(expression))


def documented() -> dict[str, tuple[str, set[str]]]:
    """Kind and labels of each metric, by its row in the docs."""
    rows = [line.split("|")[1:4] for line in OPERATIONS.read_text(encoding="utf-8").splitlines() if "| `e3_" in line]
    return {name.strip(" `"): (kind.strip(), set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def test_every_metric_is_documented_with_its_kind_and_its_labels() -> None:
    labels = {name: {label for each in family.samples for label in each.labels} for name, family in SHOWN.items()}
    assert documented() == {name: (family.type, labels[name] - {"le"}) for name, family in SHOWN.items()}


@pytest.mark.parametrize("page", PAGES)
def test_pages_name_no_metric_that_is_not_there(page: str) -> None:
    named = set(re.findall(r"\be3_[a-z_]+", (ROOT / page).read_text(encoding="utf-8")))
    assert named <= set(SHOWN) | set(SERIES)


def test_every_metric_is_drawn() -> None:
    drawn = " ".join(expression for where, expression in questions() if where.startswith("panel"))
    assert [name for name in SHOWN if name not in drawn] == []


def test_a_panel_says_what_it_shows_in_which_unit() -> None:
    for panel in PANELS:
        title = panel["title"]
        assert len(title) > 8, title
        assert panel["fieldConfig"]["defaults"].get("unit"), title
        assert panel.get("datasource") == {"type": "prometheus", "uid": "${datasource}"}, title
        for target in panel["targets"]:
            assert target.get("datasource") == panel["datasource"], title
            shown = {label for name in SERIES if re.search(rf"\b{name}\b", target["expr"]) for label in SERIES[name]}
            assert "legendFormat" in target, title
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= shown, title
            assert 'instance="$instance"' in target["expr"], f"two E3 are never added up: {title}"


def test_panels_and_targets_have_places_of_their_own() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in DASHBOARD["panels"]):
        columns, lines = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        cells = {(x, y) for x in columns for y in lines}
        assert columns[-1] < 24
        assert not cells & taken
        taken |= cells
    for panel in PANELS:
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_the_dashboard_asks_which_prometheus_and_which_e3() -> None:
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(PANELS)))
    assert used - {"__rate_interval"} <= set(variables)
    for name in ("instance", "workflow", "server"):
        inside = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variables[name]["definition"])
        assert inside is not None
        assert inside[2] == name
        assert name in SERIES[inside[1]] | TARGET_LABELS


def figures(panel: dict[str, Any]) -> list[float]:
    return [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"] if step["value"]]


@pytest.mark.parametrize(
    ("title", "figure"),
    [
        ("Finished jobs per minute: at least 20 while there is work", SLA.images_per_minute),
        ("Rendering time: p95 at most 45 s", SLA.p95_seconds),
        ("Share of runs that fail, over 15 min: at most 2 %", SLA.error_rate),
    ],
)
def test_the_lines_in_the_dashboard_are_the_targets(title: str, figure: float) -> None:
    [panel] = [panel for panel in PANELS if panel["title"] == title]
    assert figures(panel) == [figure]
    assert panel["fieldConfig"]["defaults"]["custom"]["thresholdsStyle"]["mode"] == "line"


def test_alerts_fire_at_the_targets() -> None:
    rules = {rule["alert"]: rule["expr"] for rule in RULES}
    assert rules["E3RenderingSlow"].endswith(f"> {SLA.p95_seconds:g}")
    assert re.search(rf"\) > {SLA.error_rate:g}\s", rules["E3FailureShare"])


def test_a_p95_can_be_compared_with_its_target() -> None:
    assert str(SLA.p95_seconds) in VALUES["e3_job_duration_seconds_bucket", "le"], "inside a bucket it would be a guess"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_happened_and_leads_to_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    notes = rule["annotations"]
    assert notes["summary"]
    assert len(notes["description"]) > 40
    page, _, heading = notes["runbook"].partition("#")
    assert page in ("docs/operations.md", "infra/runbooks/comfyui_sla.md")
    assert heading in headings(ROOT / page)


def test_every_alert_has_a_row_in_the_docs() -> None:
    rows = [line.split("|") for line in OPERATIONS.read_text(encoding="utf-8").splitlines() if line.startswith("| `E3")]
    leads = {row[1].strip(" `"): re.findall(r"\]\((?:\.\./)?(.*?)\)", row[3])[0] for row in rows}
    runbooks = {rule["alert"]: rule["annotations"]["runbook"] for rule in RULES}
    assert {alert: lead if "/" in lead else f"docs/{lead}" for alert, lead in leads.items()} == runbooks


def test_every_kind_of_alert_event_has_an_answer_in_the_docs() -> None:
    text = OPERATIONS.read_text(encoding="utf-8")
    assert [name for name in EventName if name.value.startswith("alert.") and f"| `{name}` |" not in text] == []


@pytest.mark.parametrize("state", sorted(VALUES["e3_server_state", "state"]))
def test_every_state_of_a_server_is_drawn_and_explained(state: str) -> None:
    [panel] = [panel for panel in PANELS if panel["title"] == "State of each server"]
    [mapping] = panel["fieldConfig"]["defaults"]["mappings"]
    assert state in {option["text"] for option in mapping["options"].values()}
    assert f"`{state}`" in OPERATIONS.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for target in re.findall(r"\]\((.*?)\)", page.read_text(encoding="utf-8")):
        file, _, heading = target.partition("#")
        assert (page.parent / file).exists(), target
        assert not heading or heading in headings(page.parent / file), target


def headings(page: Path) -> set[str]:
    lines = page.read_text(encoding="utf-8").splitlines()
    return {line.lstrip("# ").lower().replace(" ", "-") for line in lines if line.startswith("#")}


def test_prometheus_scrapes_e3_where_it_is_and_under_the_name_that_the_rules_know() -> None:
    [job] = PROMETHEUS["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"{Settings().ui.host}:{Settings().ui.port}"]}]
    known = {name for rule in RULES for name in re.findall(r'up\{job="(\w+)"\}', rule["expr"])}
    assert known == {job["job_name"]}
    assert [file for file in PROMETHEUS["rule_files"] if not (FOLDER / file).exists()] == []
