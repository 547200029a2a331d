"""The page part of E3's nodes, in a stand-in for ComfyUI's page: the panel of batches, and slots that grow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from playwright.sync_api import BrowserContext, Locator, expect

from comfyui_agent.nodes.core.parameter_parser import parse
from support.browser import Visitor, until
from support.nodes_page import Answer, Json, NodesPage, StandIn, member, stand_in, summary

HOSTILE = "<img src=x onerror=\"window.hacked='name'\"><script>window.hacked = 'script'</script>&lt;b&gt;"
REFUSED = ("Failed to load resource",)


@pytest.fixture(scope="module")
def window(context: BrowserContext) -> Iterator[NodesPage]:
    """One window for all tests here: each loads the page anew."""
    with stand_in() as told:
        page = context.new_page()
        yield NodesPage(Visitor(page, told.url), told)
        page.close()


@pytest.fixture
def nodes(window: NodesPage) -> Iterator[NodesPage]:
    """The window, where the page is not loaded yet. It may complain of nothing, and has asked nobody else."""
    yield window
    window.leave()


@pytest.fixture
def comfyui(nodes: NodesPage) -> StandIn:
    return nodes.comfyui


def panel(nodes: NodesPage) -> Locator:
    return nodes.page.get_by_role("region", name="E3 batches")


def row(nodes: NodesPage, name: str = "cats") -> Locator:
    return panel(nodes).get_by_role("listitem").filter(has=nodes.page.locator(".e3-name").get_by_text(name, exact=True))


def bar(nodes: NodesPage, name: str = "cats") -> dict[str, str | None]:
    """What the progress bar of a batch says of itself."""
    found = row(nodes, name).get_by_role("progressbar")
    names = ("valuemin", "valuenow", "valuemax", "valuetext", "label")
    return {name: found.get_attribute(f"aria-{name}") for name in names}


def says(where: Locator, words: str | re.Pattern[str]) -> None:
    """Somebody who looks there can read it."""
    expect(where).to_contain_text(words, use_inner_text=True)


def says_not(where: Locator, words: str) -> None:
    expect(where).not_to_contain_text(words, use_inner_text=True)


def press(nodes: NodesPage, label: str, **options: Any) -> None:
    row(nodes).get_by_role("button", name=label).click(**options)


# How a batch stands.


def test_with_nothing_to_show_there_is_no_panel(nodes: NodesPage, comfyui: StandIn) -> None:
    nodes.open()
    expect(panel(nodes)).to_be_hidden()
    assert comfyui.asked == [("GET", "/wi/batches")]


def test_a_batch_under_way_is_a_row_with_a_progress_bar_and_words(nodes: NodesPage, comfyui: StandIn) -> None:
    comfyui.batches = [summary(failed=2)]
    nodes.open()
    says(row(nodes), "42 of 90")
    says(row(nodes), "Rendering")
    expect(row(nodes).get_by_role("button", name="2 need attention")).to_be_visible()
    expect(row(nodes).get_by_role("button", name="Cancel batch cats")).to_be_visible()
    expect(row(nodes).get_by_role("button", name="Dismiss")).to_be_hidden()
    said = {"valuemin": "0", "valuenow": "44", "valuemax": "90", "label": "Batch cats"}
    assert bar(nodes) == {**said, "valuetext": "42 of 90 done, 2 need attention"}
    says(panel(nodes), "E3: 42 of 90 done, 2 need attention")
    widths = row(nodes).get_by_role("progressbar").evaluate("bar => [...bar.children].map(part => part.style.width)")
    assert [round(float(width.rstrip("%")), 1) for width in widths] == [46.7, 2.2]


def test_batches_that_are_there_at_the_start_stand_newest_first_below_one_sentence(
    nodes: NodesPage, comfyui: StandIn
) -> None:
    old = summary("old_00000001", created_at=1.0, completed_count=1, total=1, state="complete")
    middle = summary("middle_00000002", created_at=2.0, completed_count=5, total=10)
    new = summary("new_00000003", created_at=3.0, completed_count=1, total=1000)
    comfyui.batches = [middle, new, old]
    nodes.open()
    expect(panel(nodes).locator(".e3-name")).to_have_text(["new", "middle", "old"])
    says(panel(nodes), "E3: 6 of 1,010 done in 2 batches")
    nodes.hear("e3.batch", summary("newest_00000004", created_at=4.0))
    expect(panel(nodes).locator(".e3-name")).to_have_text(["newest", "new", "middle", "old"])


def test_events_make_a_row_and_move_it_until_the_batch_is_done(nodes: NodesPage) -> None:
    nodes.open()
    nodes.hear("e3.batch", summary(state="pending", completed_count=0))
    says(row(nodes), "Pending")
    status = panel(nodes).get_by_role("status")
    expect(status).to_have_text("Batch cats begins: 90 to render")
    for done in (1, 42, 89):
        nodes.hear("e3.batch", summary(completed_count=done))
        says(row(nodes), f"{done} of 90")
        assert bar(nodes)["valuenow"] == str(done)
    nodes.hear("e3.batch", summary(completed_count=90, state="complete"))
    says(row(nodes), "Done")
    expect(row(nodes).get_by_role("button", name="Cancel")).to_be_hidden()
    expect(status).to_have_text("Batch cats: Done, 90 of 90 done")
    expect(panel(nodes).get_by_role("listitem")).to_have_count(1)


def test_an_answer_that_is_older_than_an_event_moves_nothing_back(nodes: NodesPage, comfyui: StandIn) -> None:
    """ComfyUI is asked, a batch goes on and another begins, and only then the answer comes."""
    comfyui.batches = [summary(completed_count=10), summary("dogs_00000002", completed_count=7)]
    release = comfyui.hold("/wi/batches")
    nodes.open(until="isSettingUp")
    until(lambda: comfyui.times("GET", "/wi/batches") == 1, "the page to ask")
    nodes.hear("e3.batch", summary(completed_count=11))
    nodes.hear("e3.batch", summary("birds_00000003", completed_count=3))
    release.set()
    nodes.page.wait_for_function("window.isSetUp")
    says(row(nodes), "11 of 90")
    says(row(nodes, "dogs"), "7 of 90")
    says(row(nodes, "birds"), "3 of 90")
    assert not nodes.toasts()


def test_of_two_questions_only_the_answer_to_the_later_counts(nodes: NodesPage) -> None:
    """Not over the wire: a browser may ask the same address one after the other."""
    nodes.open()
    nodes.page.evaluate(ASKED_BY_HAND)
    for _ in range(2):
        nodes.hear("reconnected")
    for asked, batch in ((1, summary(completed_count=90, state="complete")), (0, summary(completed_count=10))):
        nodes.page.evaluate("([asked, batch]) => window.answers[asked]([batch])", [asked, batch])
        nodes.settle()
        assert bar(nodes)["valuenow"] == "90"


ASKED_BY_HAND = """() => {
  window.answers = [];
  api.fetchApi = () => new Promise((answer) => window.answers.push(
    (batches) => answer({ ok: true, json: async () => ({ batches }) })));
}"""


def test_how_a_batch_ended_is_said_in_words(nodes: NodesPage, comfyui: StandIn) -> None:
    comfyui.batches = [
        summary("left_00000001", state="cancelled"),
        summary("late_00000002", state="expired", reason="nothing came for an hour"),
        summary("full_00000003", state="complete", reason="the grid could not be made: the disk is full"),
        summary("some_00000004", state="complete", failed=2),
    ]
    nodes.open()
    says(row(nodes, "left"), "Cancelled")
    says(row(nodes, "late"), re.compile("Expired.*nothing came for an hour", re.DOTALL))
    says(row(nodes, "full"), re.compile("Needs attention.*the disk is full", re.DOTALL))
    says(row(nodes, "some"), re.compile("Needs attention.*2 need attention", re.DOTALL))
    for name in ("left", "late", "full", "some"):
        expect(row(nodes, name).get_by_role("button", name=f"Dismiss batch {name}")).to_be_visible()


# Members that failed.


def test_reasons_come_when_they_are_asked_for_the_same_reason_once(nodes: NodesPage, comfyui: StandIn) -> None:
    comfyui.batches = [summary(failed=6)]
    failed = [member(index, reason="out of memory", cfg=index / 2) for index in (2, 3, 5, 8, 9)]
    others = [member(7, reason="", steps=4), member(0, "done", "never shown"), member(1, "cancelled", "never shown")]
    comfyui.answers["/wi/batch/cats_0123abcd"] = Answer({**summary(failed=6), "members": [*failed, *others]})
    nodes.open()
    assert comfyui.times("GET", "/wi/batch/cats_0123abcd") == 0
    press(nodes, "6 need attention")
    reasons = row(nodes).locator(".e3-reasons li")
    out = "No. 3 (cfg 1); No. 4 (cfg 1.5); No. 6 (cfg 2.5) and 2 more: out of memory"
    expect(reasons).to_have_text([out, "No. 8 (steps 4): no reason is known"])
    press(nodes, "6 need attention")
    expect(reasons.first).to_be_hidden()
    assert comfyui.times("GET", "/wi/batch/cats_0123abcd") == 1


def test_open_reasons_follow_when_one_more_fails(nodes: NodesPage, comfyui: StandIn) -> None:
    comfyui.batches = [summary(failed=1)]
    path = "/wi/batch/cats_0123abcd"
    comfyui.answers[path] = Answer({"members": [member(0, reason="first")]})
    nodes.open()
    press(nodes, "1 needs attention")
    reasons = row(nodes).locator(".e3-reasons li")
    expect(reasons).to_have_text(["No. 1: first"])
    comfyui.answers[path] = Answer({"members": [member(0, reason="first"), member(1, reason="second")]})
    nodes.hear("e3.batch", summary(failed=2, completed_count=43))
    expect(reasons).to_have_text(["No. 1: first", "No. 2: second"])
    nodes.hear("e3.batch", summary(failed=2, completed_count=44))
    says(row(nodes), "44 of 90")
    assert comfyui.times("GET", path) == 2


def test_reasons_that_cannot_be_had_are_said_to_be_so(nodes: NodesPage, comfyui: StandIn) -> None:
    nodes.visitor.expected = REFUSED
    comfyui.batches = [summary(failed=1)]
    comfyui.answers["/wi/batch/cats_0123abcd"] = Answer({"error": "there is no batch cats_0123abcd"}, 404)
    nodes.open()
    press(nodes, "1 needs attention")
    expect(row(nodes).locator(".e3-reasons li")).to_have_text(["there is no batch cats_0123abcd"])


# Cancelling.

CANCEL = "/wi/cancel_batch/cats_0123abcd"


def stopped(*stuck: Json, message: str = "47 are deleted, 1 is interrupted") -> Answer:
    told = {"batch_id": "cats_0123abcd", "state": "cancelled", "deleted": [], "interrupted": [], "message": message}
    return Answer({**told, "not_stopped": list(stuck)})


def test_cancel_asks_once_with_the_count_and_the_count_goes_on(nodes: NodesPage, comfyui: StandIn) -> None:
    comfyui.batches = [summary(failed=2)]
    nodes.open()
    press(nodes, "Cancel batch cats")
    question = row(nodes).get_by_role("group", name="Stop the 46 that are not done?")
    expect(question.get_by_role("button", name="Stop 46")).to_be_focused()
    nodes.hear("e3.batch", summary(completed_count=87, failed=2))
    last = row(nodes).get_by_role("group", name="Stop the one that is not done?")
    expect(last.get_by_role("button", name="Stop 1")).to_be_focused()
    last.get_by_role("button", name="Keep rendering").click()
    expect(last).to_be_hidden()
    expect(row(nodes).get_by_role("button", name="Cancel batch cats")).to_be_focused()
    assert comfyui.times("POST", CANCEL) == 0


def test_a_double_click_on_cancel_stops_nothing(nodes: NodesPage, comfyui: StandIn) -> None:
    comfyui.batches = [summary()]
    comfyui.answers[CANCEL] = stopped()
    nodes.open()
    press(nodes, "Cancel batch cats", click_count=2)
    nodes.settle()
    assert comfyui.times("POST", CANCEL) == 0


def test_a_double_click_on_stop_posts_once_and_says_what_became_of_it(nodes: NodesPage, comfyui: StandIn) -> None:
    comfyui.batches = [summary()]
    comfyui.answers[CANCEL] = stopped()
    release = comfyui.hold(CANCEL)
    nodes.open()
    press(nodes, "Cancel batch cats")
    press(nodes, "Stop 48", click_count=2)
    says(row(nodes), "Stopping…")
    expect(row(nodes).get_by_role("button", name="Cancel")).to_be_hidden()
    nodes.hear("e3.batch", summary(completed_count=43))
    expect(row(nodes).get_by_role("button", name="Cancel")).to_be_hidden()
    nodes.hear("e3.batch", summary(completed_count=43, state="cancelled", cancelled=True))
    release.set()
    says(row(nodes), "47 are deleted, 1 is interrupted.")
    says_not(row(nodes), "Stopping…")
    expect(row(nodes).get_by_role("button", name="Dismiss batch cats")).to_be_focused()
    expect(panel(nodes).get_by_role("status")).to_have_text("47 are deleted, 1 is interrupted.")
    assert comfyui.times("POST", CANCEL) == 1


def test_what_could_not_be_stopped_is_shown(nodes: NodesPage, comfyui: StandIn) -> None:
    comfyui.batches = [summary()]
    deaf, gone = ({"prompt_id": each, "reason": f"it is <b>{each}</b>"} for each in ("deaf", "gone"))
    comfyui.answers[CANCEL] = stopped(deaf, gone, deaf, message="45 are deleted.")
    nodes.open()
    press(nodes, "Cancel batch cats")
    press(nodes, "Stop 48")
    says(row(nodes), "45 are deleted. 3 could not be stopped: it is <b>deaf</b>; it is <b>gone</b>.")


def test_a_cancel_that_was_refused_can_be_tried_again(nodes: NodesPage, comfyui: StandIn) -> None:
    nodes.visitor.expected = REFUSED
    comfyui.batches = [summary()]
    comfyui.answers[CANCEL] = Answer({"error": "ComfyUI is too busy: try again"}, 500)
    nodes.open()
    press(nodes, "Cancel batch cats")
    press(nodes, "Stop 48")
    says(row(nodes), "ComfyUI is too busy: try again")
    expect(row(nodes).get_by_role("button", name="Cancel batch cats")).to_be_focused()
    comfyui.answers[CANCEL] = stopped(message="all are stopped")
    press(nodes, "Cancel batch cats")
    press(nodes, "Stop 48")
    says(row(nodes), "All are stopped.")


def test_a_batch_that_ends_while_the_person_thinks_asks_no_more(nodes: NodesPage, comfyui: StandIn) -> None:
    comfyui.batches = [summary()]
    nodes.open()
    press(nodes, "Cancel batch cats")
    nodes.hear("e3.batch", summary(completed_count=90, state="complete"))
    expect(row(nodes).get_by_role("group")).to_be_hidden()
    expect(row(nodes).get_by_role("button", name="Dismiss batch cats")).to_be_focused()


def test_the_keyboard_is_enough_and_plain_keys_do_not_reach_the_canvas(nodes: NodesPage, comfyui: StandIn) -> None:
    comfyui.batches = [summary()]
    comfyui.answers[CANCEL] = stopped()
    nodes.open()
    nodes.page.evaluate("window.keys = []; document.addEventListener('keydown', ({ key }) => window.keys.push(key))")
    row(nodes).get_by_role("button", name="Cancel batch cats").focus()
    nodes.page.keyboard.press("Enter")
    expect(row(nodes).get_by_role("group")).to_be_visible()
    nodes.page.keyboard.press("Escape")
    expect(row(nodes).get_by_role("group")).to_be_hidden()
    nodes.page.keyboard.press("Space")
    nodes.page.keyboard.press("Space")
    says(row(nodes), "47 are deleted, 1 is interrupted.")
    nodes.page.keyboard.press("Control+Enter")
    assert nodes.page.evaluate("window.keys") == ["Control", "Enter"]
    assert comfyui.times("POST", CANCEL) == 1


# The grid.


def test_a_batch_that_is_done_shows_its_grid_at_the_right_address(nodes: NodesPage) -> None:
    grid = {"filename": "a & b=c #1 100% é+ü?.png", "subfolder": "E3/grid cats_0123abcd", "type": "output"}
    nodes.open()
    nodes.hear("e3.batch", summary(completed_count=90, state="complete", grid=grid))
    image = row(nodes).get_by_role("img", name="Open the grid of batch cats")
    expect(image).to_have_js_property("naturalWidth", 40)
    link = row(nodes).get_by_role("link", name="Open the grid of batch cats")
    for address, more in ((link.get_attribute("href"), {}), (image.get_attribute("src"), {"preview": ["webp;70"]})):
        parts = urlsplit(str(address))
        assert (parts.path, parts.fragment) == ("/api/view", "")
        assert parse_qs(parts.query) == {**{key: [value] for key, value in grid.items()}, **more}
    expect(link).to_have_attribute("target", "_blank")


def test_a_grid_that_is_shown_stays_as_it_is(nodes: NodesPage) -> None:
    done = summary(completed_count=90, state="complete", grid={"filename": "1.png", "subfolder": "", "type": "output"})
    nodes.open()
    nodes.hear("e3.batch", done)
    image = row(nodes).get_by_role("img")
    image.evaluate("image => (image.wasThere = true)")
    nodes.hear("e3.batch", {**done, "reason": "once more"})
    says(row(nodes), "once more")
    assert image.evaluate("image => image.wasThere")
    nodes.hear("e3.batch", {**done, "grid": {**done["grid"], "filename": "2.png"}})
    expect(image).to_have_attribute("src", re.compile("filename=2.png"))


# What was seen.


def test_a_dismissed_batch_stays_away_also_when_the_page_is_loaded_anew(nodes: NodesPage, comfyui: StandIn) -> None:
    ended = [summary(f"{name}_0000000{name}", state="complete", created_at=float(name)) for name in "123"]
    comfyui.batches = [*ended, summary(created_at=0.5)]
    nodes.open()
    row(nodes, "2").get_by_role("button", name="Dismiss batch 2").click()
    expect(panel(nodes).locator(".e3-name")).to_have_text(["3", "1", "cats"])
    expect(row(nodes, "1").get_by_role("button", name="Dismiss batch 1")).to_be_focused()
    nodes.hear("e3.batch", ended[1])
    nodes.open()
    expect(panel(nodes).locator(".e3-name")).to_have_text(["3", "1", "cats"])
    panel(nodes).get_by_role("button", name="Dismiss 2 ended").click()
    expect(panel(nodes).locator(".e3-name")).to_have_text(["cats"])
    nodes.hear("e3.batch", summary(state="complete", completed_count=90))
    press(nodes, "Dismiss batch cats")
    expect(panel(nodes)).to_be_hidden()


def test_a_folded_panel_counts_on_and_stays_folded(nodes: NodesPage, comfyui: StandIn) -> None:
    comfyui.batches = [summary()]
    nodes.open()
    panel(nodes).get_by_role("button", name="Hide E3 batches").click()
    nodes.open()
    nodes.hear("e3.batch", summary(completed_count=43))
    says(panel(nodes), "E3: 43 of 90 done")
    expect(panel(nodes).get_by_role("listitem")).to_be_hidden()
    panel(nodes).get_by_role("button", name="Show E3 batches").click()
    expect(row(nodes)).to_be_visible()


# When ComfyUI goes and comes.


def test_after_a_lost_connection_everything_is_asked_for_again(nodes: NodesPage, comfyui: StandIn) -> None:
    comfyui.batches = [summary(), summary("dogs_00000002"), summary("old_00000003", state="complete")]
    nodes.open()
    nodes.hear("reconnecting")
    says(panel(nodes), re.compile(r"no connection since \d\d?:\d\d"))
    comfyui.batches = [summary(completed_count=88)]
    nodes.hear("reconnected")
    says(row(nodes), "88 of 90")
    expect(panel(nodes).get_by_role("listitem")).to_have_count(1)
    says_not(panel(nodes), "no connection")
    assert comfyui.times("GET", "/wi/batches") == 2
    assert [toast["detail"] for toast in nodes.toasts()] == [
        "Batch dogs is gone: ComfyUI was restarted. Queue it again."
    ]


def test_a_comfyui_that_cannot_tell_leaves_what_is_shown(nodes: NodesPage, comfyui: StandIn) -> None:
    nodes.visitor.expected = REFUSED
    comfyui.batches = [summary()]
    nodes.open()
    for answer in (Answer({"error": "no"}, 500), Answer(b"<p>Log in first</p>")):
        comfyui.asked.clear()
        comfyui.answers["/wi/batches"] = answer
        nodes.hear("reconnected")
        until(lambda: comfyui.times("GET", "/wi/batches") == 1, "the page to ask again")
        nodes.settle()
        says(row(nodes), "42 of 90")
    assert not nodes.toasts()


def test_a_notice_becomes_a_toast(nodes: NodesPage) -> None:
    nodes.open()
    nodes.hear("e3.notice", {"message": "param_2 of iterator 4 is left out: it is not connected"})
    (toast,) = nodes.toasts()
    said = "param_2 of iterator 4 is left out: it is not connected"
    assert (toast["severity"], toast["summary"], toast["detail"]) == ("warn", "E3", said)


# Names and reasons are whatever somebody typed.


def test_hostile_names_and_reasons_stay_text_and_run_nothing(nodes: NodesPage, comfyui: StandIn) -> None:
    batch_id = "../../x?y#z%2f\"'<b>_0123abcd"
    grid = {"filename": f"{HOSTILE}.png", "subfolder": "../..", "type": 'output"onload="window.hacked=2'}
    hostile: dict[str, Any] = {"batch_name": HOSTILE, "reason": HOSTILE, "failed": 1, "grid": grid}
    comfyui.batches = [summary(batch_id, **hostile)]
    escaped = quote(batch_id, safe="!'()*")
    failed = member(0, reason=f"failed {HOSTILE}", **{HOSTILE: HOSTILE})
    comfyui.answers[f"/wi/batch/{escaped}"] = Answer({"members": [failed]})
    comfyui.answers[f"/wi/cancel_batch/{escaped}"] = stopped({"reason": HOSTILE}, message=HOSTILE)
    nodes.open()
    found = row(nodes, HOSTILE)
    expect(found.locator(".e3-note")).to_have_text(HOSTILE)
    found.get_by_role("button", name="1 needs attention").click()
    expect(found.locator(".e3-reasons")).to_contain_text(f"failed {HOSTILE}")
    found.get_by_role("button", name="Cancel").click()
    found.get_by_role("button", name="Stop 47").click()
    expect(found.locator(".e3-note")).to_contain_text("1 could not be stopped")
    nodes.hear("e3.batch", summary(batch_id, state="complete", **hostile))
    expect(found.get_by_role("img")).to_have_js_property("naturalWidth", 40)
    assert panel(nodes).locator("script, iframe, b, img:not(.e3-grids img), [onload], [onerror]").count() == 0
    assert panel(nodes).locator("img").count() == 1
    assert nodes.page.evaluate("window.hacked") is None


# Slots of an iterator.

SLOTS = "node.inputs.map((input) => (input.link === null ? input.name : `${input.name}*`)).join(' ')"
MAKE = """async (inputs) => {
  const { StandInNode } = await import("/scripts/app.js");
  window.Iterator = class extends StandInNode {};
  app.extension.beforeRegisterNodeDef(window.Iterator, { name: "WIIterator" });
  window.node = new window.Iterator(inputs);
  node.onAdded();
}"""


def slots(nodes: NodesPage) -> str:
    """The inputs of the iterator, those that are connected with a star, when all is tidy."""
    nodes.settle()
    return str(nodes.page.evaluate(SLOTS))


def test_a_new_iterator_has_one_free_slot_and_grows_with_each_connection(nodes: NodesPage) -> None:
    nodes.open()
    nodes.page.evaluate(MAKE, [["param_1", None]])
    assert slots(nodes) == "param_1"
    nodes.page.evaluate("node.link('param_1', 11)")
    assert nodes.page.evaluate(SLOTS) == "param_1* param_2"
    nodes.page.evaluate("node.link('param_2', 12); node.link('param_3', 13)")
    assert slots(nodes) == "param_1* param_2* param_3* param_4"
    assert nodes.page.evaluate("node.inputs[3].type") == "WI_PARAMETER"
    assert nodes.page.evaluate("node.size[1]") >= 80


@pytest.mark.parametrize(("freed", "left"), [("param_3", [11, 12, None]), ("param_1", [12, 13, None])])
def test_a_slot_that_is_let_go_goes_away_and_the_others_move_up(
    nodes: NodesPage, freed: str, left: list[int | None]
) -> None:
    nodes.open()
    nodes.page.evaluate(MAKE, [["param_1", 11], ["param_2", 12], ["param_3", 13], ["param_4", None]])
    nodes.page.evaluate("name => node.link(name, null)", freed)
    assert slots(nodes) == "param_1* param_2* param_3"
    assert nodes.page.evaluate("node.inputs.map((input) => input.link)") == left
    nodes.page.evaluate("for (const { name } of [...node.inputs]) node.link(name, null)")
    assert slots(nodes) == "param_1"


def test_a_workflow_that_is_read_keeps_its_slots_until_it_is_read(nodes: NodesPage) -> None:
    """Links have numbers of slots: a slot that moves while they are read would take another's link."""
    nodes.open()
    nodes.page.evaluate("app.configuringGraph = true")
    inputs = [["param_1", None], ["param_2", None], ["param_3", 13], ["enabled", None], ["param_7", 17]]
    nodes.page.evaluate(MAKE, inputs)
    nodes.page.evaluate("node.onConfigure(); node.onConnectionsChange(1, 0, true)")
    assert slots(nodes) == "param_1 param_2 param_3* enabled param_7*"
    nodes.page.evaluate("app.configuringGraph = false")
    nodes.page.wait_for_function("node.inputs.length === 4")
    assert slots(nodes) == "param_1* enabled param_2* param_3"
    assert nodes.page.evaluate("node.inputs.map((input) => input.link)") == [13, None, 17, None]


def test_other_nodes_keep_their_inputs(nodes: NodesPage) -> None:
    nodes.open()
    nodes.page.evaluate(MAKE.replace("WIIterator", "KSampler").replace("node.onAdded();", ""), [["param_1", 11]])
    assert nodes.page.evaluate("node.onConnectionsChange === undefined")
    assert slots(nodes) == "param_1*"


# Values that a parameter is made with.

TEXTS = ("a cat", "", " led by a space", "a, b", "a | b", 'he said "no"', "back\\slash, and a comma", "1..3")
MORE_TEXTS = ("1,2,..,9", "@prompts.txt", "random:4", "RANDOM:4", "two\nlines, and a comma", "ends in \\", "“a, b”")
NUMBERS = ((7, "INT"), (-0.25, "FLOAT"), (True, "BOOLEAN"), (1e21, "FLOAT"))


def test_a_widgets_value_is_written_so_that_it_is_read_as_the_same(nodes: NodesPage) -> None:
    nodes.open()
    values = [*((text, "STRING") for text in (*TEXTS, *MORE_TEXTS)), *NUMBERS]
    script = """async (values) => {
      const { written } = await import("/extensions/e3_iterator/parameter_menu.js");
      return values.map(([value]) => written(value));
    }"""
    texts = nodes.page.evaluate(script, values)
    assert [parse(text, type_) for text, (_, type_) in zip(texts, values, strict=True)] == [
        [each] for each, _ in values
    ]
