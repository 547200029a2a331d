"""From a result onwards in the page: again, changed, varied, as an input picture; takes; and what is dropped on it."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Page, expect

from support.browser import Site, Visit, until

PORTRAIT = "wf_realistic_portrait"
DROP = """
async ([name, type, from]) => {
  const data = from.startsWith("/") ? await (await fetch(from)).blob() : new Blob([from]);
  const transfer = new DataTransfer();
  transfer.items.add(new File([data], name, {type}));
  document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: transfer, bubbles: true, cancelable: true}));
}
"""


def done(site: Site, name: str, **inputs: Any) -> dict[str, Any]:
    site.queue(name, PORTRAIT, **{"prompt": "a fox", "seed": 7, "steps": 3, **inputs})
    return site.wait_job(name, "done")


def test_again_is_a_click_and_a_changed_form_sends_only_what_differs(site: Site, visit: Visit) -> None:
    job = done(site, "onward")
    visitor = visit(site, f"/jobs/{job['id']}")
    page = visitor.page
    page.get_by_role("button", name="Again with a new seed").click()
    expect(page.get_by_text("It is queued again with a new seed.")).to_be_visible()
    again = until(lambda: list(site.jobs(q="onward_")), "the new job")[0]
    assert again["inputs"]["5.seed"] != 7
    page.get_by_role("link", name="Change and run").click()
    page.wait_for_url("**/new?from=*")
    visitor.wait_live()
    page.get_by_role("button", name="Queue it").click()
    expect(page.get_by_text("Nothing is different yet")).to_be_visible()
    page.get_by_label("prompt", exact=True).fill("an owl")
    page.get_by_role("button", name="Queue it").click()
    page.wait_for_url(re.compile(r"/jobs/\d+$"))
    changed = site.job(int(page.url.rpartition("/")[2]))
    assert changed["inputs"] == job["inputs"] | {"2.text": "an owl"}


def test_where_a_result_lies_is_copied(site: Site, visit: Visit) -> None:
    job = done(site, "lies")
    page = visit(site, f"/jobs/{job['id']}").page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    expected = str(site.workspace.root.resolve() / job["outputs"][0])
    page.get_by_role("button", name="Copy path").click()
    expect(page.get_by_text(f"Copied: {expected}")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == expected


def test_a_result_and_its_settings_are_taken_along_from_the_page_of_its_job(site: Site, visit: Visit) -> None:
    job = done(site, "taken_along", prompt="a fox\n" * 400)
    page = visit(site, f"/jobs/{job['id']}").page
    with page.expect_download() as downloading:
        page.get_by_role("link", name="Download").click()
    assert downloading.value.suggested_filename == "taken_along.png"
    page.get_by_role("button", name="Copy settings").click()
    expect(page.get_by_text("Copied: the settings")).to_be_visible()
    shown = page.get_by_role("cell", name="a fox").bounding_box()
    assert shown is not None
    assert shown["height"] < 300
    acts = page.get_by_role("main").get_by_role("button").all_text_contents()
    assert acts.index("Again with a new seed") < acts.index("Copy settings") < acts.index("Remove")


def test_a_sweep_around_a_job_is_counted_before_it_is_queued(site: Site, visit: Visit) -> None:
    job = done(site, "around")
    page = visit(site, f"/new?kind=sweep&from={job['id']}").page
    page.get_by_label("Input 1").fill("cfg")
    page.get_by_label("Values 1").fill("4,5,6")
    expect(page.get_by_text("3 pictures")).to_be_visible()
    page.get_by_role("button", name="Queue the sweep").click()
    page.wait_for_url(re.compile("/batches/around_"))
    assert site.wait_batch(page.url.rpartition("/")[2], done=3)["total"] == 3


def test_a_result_becomes_the_picture_of_another_workflow(site: Site, visit: Visit) -> None:
    job = done(site, "source")
    page = visit(site, f"/new?use={job['id']}").page
    expect(page.get_by_label("image", exact=True)).to_have_value(job["outputs"][0])
    page.get_by_label("prompt", exact=True).fill("in oil")
    page.get_by_role("button", name="Queue it").click()
    page.wait_for_url(re.compile(r"/jobs/\d+$"))
    assert list(site.job(int(page.url.rpartition("/")[2]))["pictures"]) == ["4.image"]
    expect(page.get_by_role("row", name="image").get_by_role("img")).to_have_js_property("naturalWidth", 320)


def choose(page: Page, site: Site, job: dict[str, Any]) -> None:
    page.get_by_role("button", name="Use this take").click()
    until(lambda: site.job(job["id"])["take"] == 1, "the first take to count")


def test_a_job_that_was_rendered_again_shows_its_takes_and_lets_one_be_chosen(site: Site, visit: Visit) -> None:
    book = site.book("takes", PORTRAIT, [{"prompt": "a fox"}], seed=1, steps=3)
    site.wait_batch(book, done=1)
    [job] = site.jobs(batch=book)
    site.ask(f"/admin/books/{book}/regenerate-page/1", {"inputs": {"seed": 2}})
    until(lambda: site.job(job["id"])["take"] == 2 and site.job(job["id"])["status"] == "done", "another take")
    page = visit(site, f"/books/{book}").page
    page.get_by_role("link", name="Its takes").click()
    expect(page.get_by_text("Take 2, the one that counts")).to_be_visible()
    for number in (1, 2):
        shown = page.get_by_alt_text(f"Take {number}").bounding_box()
        assert shown is not None
        assert shown["height"] > 50
    choose(page, site, job)
    expect(page.get_by_text("Take 1, the one that counts")).to_be_visible()
    assert site.job(job["id"])["outputs"] == job["outputs"]


def test_what_is_dropped_anywhere_becomes_an_input_or_a_workflow(site: Site, visit: Visit) -> None:
    job = done(site, "dropped")
    visitor = visit(site, "/servers")
    page = visitor.page
    page.evaluate(DROP, ["plain.webp", "image/webp", f"/api/v1/jobs/{job['id']}/results/1/thumbnail"])
    page.wait_for_url(re.compile("/new.*picture=input"))
    expect(page.get_by_label("image", exact=True)).to_have_value(re.compile(r"input:[0-9a-f]{64}\.webp"))
    expect(page.locator(".picked-picture")).to_have_js_property("complete", value=True)
    visitor.go("/queue")
    page.evaluate(DROP, ["dropped.png", "image/png", f"/api/v1/jobs/{job['id']}/results/1"])
    page.get_by_role("button", name="Import the workflow").click()
    page.wait_for_url(re.compile("/new.*workflow=dropped"))
    expect(page.get_by_label("prompt", exact=True)).to_have_value("a fox")
    assert "dropped" in {each["workflow_id"] for each in site.ask("/api/v1/workflows")["workflows"]}
