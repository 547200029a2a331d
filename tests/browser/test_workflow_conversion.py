"""Every template that comes with ComfyUI, converted here and by ComfyUI's own page: no node may differ."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from comfyui_agent.workflows.conversion import convert
from comfyui_agent.workflows.errors import NotConvertible, WorkflowError
from support.browser import new_context, until
from support.comfyui_page import ELSEWHERE, ask
from support.servers import REAL_DIR, REAL_PYTHON, REAL_URL, real_comfyui

pytestmark = [
    pytest.mark.real_comfyui,
    pytest.mark.slow,
    pytest.mark.skipif(not (REAL_DIR and REAL_PYTHON), reason="set E3_COMFYUI_DIR and E3_COMFYUI_PYTHON"),
    pytest.mark.timeout(3_000),
]

PACKAGES = "comfyui_workflow_templates*/templates/*.json"
WHERE = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
IS_READY = "!!(window.app?.extensionManager?.workflow?.activeWorkflow && !app.extensionManager.spinner)"
"""Not before: until then the page is still opening a first workflow by itself."""
CONVERT = """async ([workflow, name]) => {
    await app.loadGraphData({...workflow, extra: {...workflow.extra, template: name}}, true, true, name);
    const {output} = await app.graphToPrompt();
    return app.graph.extra.template === name ? [output] : null;
}"""
"""Nothing if the page shows another workflow by now: it opens some by itself, and the last one that it opens wins."""
AT_ONCE = 60
"""Templates that one window opens: it keeps what it opened before."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    if REAL_URL:
        yield REAL_URL
        return
    process = real_comfyui(tmp_path / "comfyui")
    process.command = [each for each in process.command if each != "--disable-api-nodes"]  # templates use them
    yield process.start().url
    process.kill()


def templates() -> list[tuple[str, Any]]:
    """The workflows of the installed packages, or those that E3_TEMPLATES names."""
    folder = subprocess.run([REAL_PYTHON, "-c", WHERE], capture_output=True, text=True, check=True).stdout.strip()
    wanted = os.environ.get("E3_TEMPLATES", "").split()
    found = [(path.stem, path) for path in sorted(Path(folder).glob(PACKAGES)) if not wanted or path.stem in wanted]
    documents = [(name, json.loads(path.read_bytes())) for name, path in found]
    return [(name, each) for name, each in documents if isinstance(each, dict) and isinstance(each.get("nodes"), list)]


def pages_outputs(browser: Browser, url: str, found: list[tuple[str, Any]]) -> Iterator[tuple[str, Any, Any]]:
    for begin in range(0, len(found), AT_ONCE):
        with new_context(browser) as context:
            page = opened(context.new_page(), url)
            for name, document in found[begin : begin + AT_ONCE]:
                yield name, document, pages_output(page, name, document)


def pages_output(page: Page, name: str, document: Any) -> Any:
    """What the page makes of this workflow and no other: until it is the one that it shows, it is loaded again."""
    (output,) = until(lambda: page.evaluate(CONVERT, [document, name]), f"the page to show {name}")
    return output


def opened(page: Page, url: str) -> Page:
    page.route(ELSEWHERE, lambda route: route.abort())
    page.goto(url)
    until(lambda: page.evaluate(IS_READY), "the page", 120)
    return page


def is_same(one: Any, other: Any) -> bool:
    """Equal as JSON. A browser's numbers have 53 bits."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return float(one) == float(other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    return bool(one == other)


def is_declared(definition: Mapping[str, Any], name: str) -> bool:
    parts = [definition["input"].get(part) or {} for part in ("required", "optional")]
    return any(name.partition(".")[0] in part for part in parts)


def differences(pages: Mapping[str, Any], ours: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[str]:
    """What differs, but for inputs that only the page knows, and for titles that the page's language decides."""
    for node_id in pages.keys() ^ ours.keys():
        yield f"{node_id} is only in {'the page' if node_id in pages else 'ours'}"
    for node_id in pages.keys() & ours.keys():
        theirs, own = pages[node_id], ours[node_id]
        definition = definitions[own["class_type"]]
        if theirs["class_type"] != own["class_type"]:
            yield f"{node_id}: {theirs['class_type']} in the page, {own['class_type']} in ours"
        if own["_meta"] != theirs["_meta"] and own["_meta"]["title"] != definition.get("display_name"):
            yield f"{node_id}: called {theirs['_meta']['title']!r} in the page, {own['_meta']['title']!r} in ours"
        for name in theirs["inputs"].keys() | own["inputs"].keys():
            if name not in own["inputs"] and not is_declared(definition, name):
                continue
            values = [each["inputs"].get(name, "nothing") for each in (theirs, own)]
            if not is_same(*values):
                yield f"{node_id}.{name}: {values[0]!r:.80} in the page, {values[1]!r:.80} in ours"


def test_no_template_differs_from_the_page(browser: Browser, server: str, capsys: pytest.CaptureFixture[str]) -> None:
    definitions = ask(server, "/object_info")
    version = ask(server, "/system_stats")["system"]["comfyui_version"]
    refused, different, equal = Counter[str](), dict[str, list[str]](), 0
    for name, document, output in pages_outputs(browser, server, templates()):
        try:
            ours = convert(document, definitions, version, choose=lambda options: options[0])
        except WorkflowError as error:
            refused[error.reason if isinstance(error, NotConvertible) else str(error)] += 1
            continue
        found = list(differences(output, ours, definitions))
        if found:
            different[name] = found
        else:
            equal += 1
    lines = [f"ComfyUI {version}: equal {equal}, refused {refused.total()}, different {len(different)}"]
    lines += [f"  refused {count}: {reason}" for reason, count in refused.most_common()]
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(lines) + "\n")
    assert not different
    assert equal
