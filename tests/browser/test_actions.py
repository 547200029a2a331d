"""Steering in the page: cancel, undo, bump, several at once, by keys and by links that can be sent to someone."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from support.agents import server_queue
from support.browser import Site, Visit, until

LONG = 30.0
"""Longer than any test waits."""


def rows(page: Page) -> list[str]:
    """The names in the queue, from the top."""
    return page.get_by_role("row").get_by_role("link").all_inner_texts()


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row", name=name)


def answer(page: Page, question: str | re.Pattern[str], yes: str) -> None:
    """Agree with what is asked."""
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(question)
    dialog.get_by_role("button", name=yes, exact=True).click()


def test_cancelling_a_batch_asks_once_with_the_count_and_takes_back_what_runs(site: Site, visit: Visit) -> None:
    batch = site.sweep("long", "sleepy", {"1.color": "1..5"}, **{"3.seconds": LONG})
    page = visit(site, f"/batches/{batch}").page
    expect(page.locator("#grid [data-status=processing]").first).to_be_visible()
    page.get_by_role("button", name="Cancel", exact=True).click()
    answer(page, "Cancel 5 jobs of long that have not ended?", "Cancel 5 jobs")
    expect(page.get_by_role("status").get_by_text("long is cancelled")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator("#grid").get_by_text("Cancelled", exact=True)).to_have_count(5)
    until(lambda: not server_queue(site.servers[0].url).all, "the server to have nothing left", LONG / 2)
    assert site.batch(batch)["failed"] == 5


def test_a_cancelled_job_comes_back_by_undoing_it(site: Site, visit: Visit) -> None:
    site.pause()
    job = site.queue("undone", color=12)
    page = visit(site, f"/jobs/{job['id']}").page
    page.get_by_role("button", name="Cancel", exact=True).click()
    answer(page, "Cancel undone?", "Leave it")
    assert site.job("undone")["status"] == "pending"
    page.get_by_role("button", name="Cancel", exact=True).click()
    answer(page, "Cancel undone?", "Cancel 1 job")
    expect(page.get_by_label("Facts")).to_contain_text("Cancelled")
    page.get_by_role("region", name="What happened").get_by_role("button", name="Retry it").click()
    expect(page.get_by_text("undone waits again")).to_be_visible()
    expect(page.get_by_label("Facts")).to_contain_text("Pending")
    site.resume()
    expect(page.get_by_label("Facts")).to_contain_text("Done")


def test_a_bump_changes_the_order_and_the_next_dispatch_follows_it(site: Site, visit: Visit) -> None:
    site.pause()
    names = [f"order_{number}" for number in range(4)]
    for number, name in enumerate(names):
        site.queue(name, color=100 + number)
    page = visit(site, "/queue?status=pending").page
    assert rows(page) == names
    row(page, "order_2").get_by_role("checkbox").check()
    page.get_by_role("region", name="What is selected").get_by_role("button", name="Bump").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Priority")).to_have_value("49")
    answer(page, "Run order_2 before others?", "Bump 1 job")
    until(lambda: rows(page) == ["order_2", "order_0", "order_1", "order_3"], f"another order than {rows(page)}")
    expect(page.get_by_text("order_2 has priority 49")).to_be_visible()
    site.resume()
    ended = [site.wait_job(name, "done")["end_time"] for name in names]
    assert sorted(names, key=lambda name: ended[names.index(name)]) == ["order_2", "order_0", "order_1", "order_3"]


def test_a_bump_can_be_undone(site: Site, visit: Visit) -> None:
    site.pause()
    for number in range(2):
        site.queue(f"undo_bump_{number}", color=200 + number)
    page = visit(site, f"/jobs/{site.job('undo_bump_1')['id']}").page
    page.get_by_role("button", name="Bump", exact=True).click()
    until(lambda: site.job("undo_bump_1")["priority"] == 49, "a priority of 49")
    page.get_by_role("region", name="What happened").get_by_role("button", name="Undo").click()
    until(lambda: site.job("undo_bump_1")["priority"] == 50, "its old priority")


def test_what_is_selected_stays_so_while_the_list_changes(site: Site, visit: Visit) -> None:
    site.pause()
    for number in range(3):
        site.queue(f"picked_{number}", color=300 + number)
    page = visit(site, "/queue?status=pending").page
    row(page, "picked_1").get_by_role("checkbox").check()
    site.ask(f"/api/v1/jobs/{site.job('picked_2')['id']}/priority", {"priority": 3}, "PUT")
    site.queue("picked_3", priority=4, color=303)
    until(lambda: rows(page) == ["picked_2", "picked_3", "picked_0", "picked_1"], "the list to change")
    expect(row(page, "picked_1").get_by_role("checkbox")).to_be_checked()
    expect(row(page, "picked_0").get_by_role("checkbox")).not_to_be_checked()
    expect(page.get_by_role("region", name="What is selected")).to_contain_text("1 job selected")


def test_the_keys_do_what_the_help_says(site: Site, visit: Visit) -> None:
    site.pause()
    for number in range(3):
        site.queue(f"keys_{number}", color=400 + number)
    visitor = visit(site, "/queue?status=pending")
    page = visitor.page
    page.keyboard.press("?")
    help_words = page.get_by_role("dialog", name="Keys")
    expect(help_words).to_contain_text("Search")
    page.keyboard.press("Escape")
    expect(help_words).to_be_hidden()

    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("keys_")
    expect(page.locator("#sentence")).to_contain_text("“keys_”")
    expect(page).to_have_url(re.compile("q=keys_"))
    page.keyboard.press("Tab")

    page.keyboard.press("j")
    expect(page.get_by_role("link", name="keys_0")).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.get_by_role("link", name="keys_1")).to_be_focused()

    page.keyboard.press("x")
    expect(row(page, "keys_1").get_by_role("checkbox")).to_be_checked()
    page.keyboard.press("b")
    answer(page, "Run keys_1 before others?", "Bump 1 job")
    until(lambda: site.job("keys_1")["priority"] == 49, "a bump")
    expect(page.get_by_text("keys_1 has priority 49")).to_be_visible()
    expect(page.get_by_role("checkbox", checked=True)).to_have_count(0)

    page.get_by_role("link", name="keys_2").focus()
    page.keyboard.press("c")
    answer(page, "Cancel keys_2?", "Cancel 1 job")
    until(lambda: site.job("keys_2")["status"] == "failed", "keys_2 to be cancelled")

    visitor.go("/queue?status=failed&q=keys_2")
    page.keyboard.press("j")
    page.keyboard.press("r")
    until(lambda: site.job("keys_2")["status"] == "pending", "keys_2 to wait again")


def test_several_are_cancelled_at_once_and_the_question_names_the_count(site: Site, visit: Visit) -> None:
    site.pause()
    for number in range(3):
        site.queue(f"many_{number}", color=500 + number)
    page = visit(site, "/queue?q=many_").page
    page.get_by_label("Select all on this page").check()
    page.keyboard.press("c")
    answer(page, "Cancel 3 jobs?", "Cancel 3 jobs")
    expect(page.get_by_text("3 jobs cancelled")).to_be_visible()
    assert {site.job(f"many_{number}")["failure_class"] for number in range(3)} == {"cancelled"}


def test_the_question_counts_what_will_be_cancelled_while_jobs_end_behind_it(site: Site, visit: Visit) -> None:
    site.pause()
    for number in range(3):
        site.queue(f"ends_{number}", color=550 + number)
    page = visit(site, "/queue?q=ends_").page
    page.get_by_label("Select all on this page").check()
    page.keyboard.press("c")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Cancel 3 jobs?")
    site.ask("/api/v1/jobs/cancel", {"names": ["ends_0"]})
    expect(dialog).to_contain_text("Cancel 2 jobs?")
    answer(page, "1 other is left alone: it has ended already.", "Cancel 2 jobs")
    expect(page.get_by_text("2 jobs cancelled")).to_be_visible()


def test_what_failed_is_dismissed_by_a_key_and_stays_in_the_history(site: Site, visit: Visit) -> None:
    site.queue("put_aside", "wf_realistic_portrait", prompt="x", seed=1, steps=1, checkpoint="none.safetensors")
    site.wait_job("put_aside", "failed")
    page = visit(site, "/queue?status=attention&q=put_aside").page
    page.keyboard.press("j")
    page.keyboard.press("d")
    expect(page.get_by_text("1 job dismissed")).to_be_visible()
    expect(page.get_by_role("link", name="put_aside")).to_have_count(0)
    page.goto(f"{site.url}/queue?status=aside&q=put_aside")
    expect(row(page, "put_aside")).to_contain_text("Dismissed")


def test_a_filter_is_an_address_that_shows_the_same_to_someone_else(site: Site, visit: Visit) -> None:
    site.pause()
    for name in ("sent_1", "sent_2", "kept_1"):
        site.queue(name, color=600 + len(name))
    page = visit(site, "/queue").page
    page.get_by_role("link", name="Pending").click()
    page.get_by_role("searchbox").fill("sent_")
    until(lambda: rows(page) == ["sent_1", "sent_2"], "the two that match")
    expect(page).to_have_url(re.compile(r"status=pending"))
    other = visit(site, page.url.removeprefix(site.url)).page
    assert rows(other) == ["sent_1", "sent_2"]
    expect(other.get_by_role("searchbox")).to_have_value("sent_")
    page.go_back()
    expect(page.get_by_role("link", name="kept_1")).to_be_visible()
