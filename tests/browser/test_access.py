"""Who may see and do what, as it looks in the page."""

from __future__ import annotations

import json
import re

from playwright.sync_api import Page, expect

from support.browser import Guarded, Visit, Visitor, e3, knows, make_token, until

REFUSED = ("status of 401", "status of 403")


def log_in(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()


def visitor_with(guarded: Guarded, visit: Visit, token: str) -> Visitor:
    visitor = visit(guarded.site, expected=REFUSED)
    visitor.log_in(token)
    return visitor


def test_people_without_a_token_log_in_and_arrive_where_they_wanted(guarded: Guarded, visit: Visit) -> None:
    page = visit(guarded.site, expected=REFUSED).page
    page.goto(f"{guarded.site.url}/queue?status=done")
    expect(page).to_have_url(re.compile("/login"))
    log_in(page, "e3_" + "x" * 43)
    expect(page.get_by_role("alert")).to_contain_text("This token is not known here")
    log_in(page, guarded.user)
    expect(page).to_have_url(f"{guarded.site.url}/queue?status=done")
    assert "e3_session" not in page.evaluate("document.cookie"), "scripts must not see it"
    [cookie] = page.context.cookies()
    assert (cookie["name"], cookie["sameSite"]) == (f"e3_session_{guarded.site.port}", "Strict")
    assert guarded.user not in str(cookie)


def test_after_logout_a_token_is_asked_for_again(guarded: Guarded, visit: Visit) -> None:
    visitor = visitor_with(guarded, visit, guarded.user)
    page = visitor.go("/queue")
    [cookie] = page.context.cookies()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.context.add_cookies([cookie])
    page.goto(f"{guarded.site.url}/queue")
    expect(page.get_by_label("Token")).to_be_visible()


def test_a_reader_is_offered_no_changes(guarded: Guarded, visit: Visit) -> None:
    guarded.site.pause()
    try:
        job = guarded.site.queue("only_to_look_at", color=5)
        visitor = visitor_with(guarded, visit, make_token(guarded.site, "read"))
        page = visitor.go(f"/jobs/{job['id']}")
        expect(page.get_by_role("heading", name="only_to_look_at")).to_be_visible()
        expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)
        expect(page.get_by_role("link", name="New", exact=True)).to_have_count(0)
        page.goto(f"{guarded.site.url}/new")
        expect(page.get_by_role("heading", name="Not allowed")).to_be_visible()
    finally:
        guarded.site.clear()


def test_a_user_is_offered_what_is_theirs_and_no_admin_page(guarded: Guarded, visit: Visit) -> None:
    guarded.site.pause()
    try:
        job = guarded.site.queue("for_all_to_see", color=1)
        own = guarded.asked_by(guarded.user).queue("their_own", color=1)
        visitor = visitor_with(guarded, visit, guarded.user)
        page = visitor.go(f"/jobs/{own['id']}")
        expect(page.get_by_label("Facts")).to_contain_text("a user")
        expect(page.get_by_role("button", name="Cancel", exact=True)).to_be_visible()
        page.get_by_role("button", name="Bump", exact=True).click()
        expect(page.get_by_label("Facts")).to_contain_text("49")
        visitor.go(f"/jobs/{job['id']}")
        expect(page.get_by_label("Facts")).to_contain_text("a admin")
        expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)
        expect(page.get_by_role("button", name="Bump")).to_have_count(0)
        expect(page.get_by_role("link", name="Admin")).to_have_count(0)
        visitor.go("/servers")
        expect(page.get_by_role("article").first).to_be_visible()
        expect(page.get_by_role("button", name="Resume")).to_have_count(0)
        page.goto(f"{guarded.site.url}/admin")
        expect(page.get_by_role("heading", name="Not allowed")).to_be_visible()
        expect(page.get_by_role("main")).to_contain_text("--role admin")
        answer = page.evaluate(f"fetch('/api/v1/jobs/{job['id']}/priority', {PUT}).then((answer) => answer.status)")
        assert answer == 403
    finally:
        guarded.site.clear()


PUT = "{method: 'PUT', headers: {'Content-Type': 'application/json'}, body: '{\"priority\": 1}'}"


def test_an_admin_sees_and_does_what_a_user_cannot(guarded: Guarded, visit: Visit) -> None:
    guarded.site.pause()
    try:
        job = guarded.site.queue("for_admins", color=2)
        visitor = visitor_with(guarded, visit, guarded.admin)
        page = visitor.go(f"/jobs/{job['id']}")
        page.get_by_role("button", name="Bump", exact=True).click()
        expect(page.get_by_label("Facts")).to_contain_text("49")
        page.get_by_role("link", name="Admin").first.click()
        expect(page.get_by_role("heading", name="Admin")).to_be_visible()
        expect(page.get_by_role("row", name="a user")).to_be_visible()
        visitor.go("/servers")
        expect(page.get_by_role("button", name="Resume", exact=True)).to_be_visible()
    finally:
        guarded.site.clear()


def test_a_token_that_was_taken_back_leads_to_the_login(guarded: Guarded, visit: Visit) -> None:
    guarded.site.pause()
    try:
        token = make_token(guarded.site, "user")
        job = guarded.asked_by(token).queue("for_someone_who_left", color=3)
        visitor = visitor_with(guarded, visit, token)
        page = visitor.go(f"/jobs/{job['id']}")
        newest = json.loads(e3(guarded.site, "token", "ls", "--json"))[-1]
        e3(guarded.site, "token", "revoke", str(newest["id"]))
        until(lambda: not knows(guarded.asked_by(token)), "the page to know that the token was taken back")
        page.get_by_role("button", name="Cancel", exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel 1 job", exact=True).click()
        expect(page.get_by_label("Token")).to_be_focused()
        assert guarded.site.job(job["id"])["status"] == "pending"
    finally:
        guarded.site.clear()
