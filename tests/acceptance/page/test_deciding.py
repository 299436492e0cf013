"""Decisions on the web page in a real browser: approvals, failed deliveries, incidents."""

import os
import pwd

from tests.acceptance.page.conftest import (
    HOSTILE,
    barriers,
    fixture,
    take_picture,
    toml,
    with_browser,
)

pytestmark = with_browser


@fixture()
async def daemon(home):
    """A daemon in which a call waits, a report goes nowhere, a routine failed and models are
    paid.
    """
    says = toml(HOSTILE)
    write = f'{{ name = "file_write", arguments = {{ path = "notes.md", content = {says} }} }}'
    home.write(
        "config.toml",
        f"""
[budget]
day = 0.5
day_tokens = 100000
[targets.hook]
kind = "webhook"
url = "http://127.0.0.1:9/nobody"
[providers.asks]
kind = "scripted"
price = {{ input = 2.0, output = 10.0 }}
replies = [
  {{ text = "I would write that.", tool_calls = [{write}] }}, "done", {{ tool_calls = [{write}] }}, "left out",
  {{ tool_calls = [{write}] }}, "done for good",
]
[providers.mute]
kind = "scripted"
price = {{ input = 2.0, output = 10.0 }}
replies = []
""",  # noqa: E501
    )
    home.write(
        "policy.toml",
        'version = 1\n[[rule]]\ntool = "file_write"\npaths = ["**"]\neffect = "ask"\n',
    )
    home.routine(
        "notes",
        """
[trigger]
cron = "30 8 * * *"
[run]
mode = "agent"
provider = "asks"
tools = ["file_write"]
prompt = "Write the notes."
[[deliver]]
to = "hook"
""",
    )
    home.routine(
        "mute",
        (
            '[trigger]\non_start = true\n[run]\nprovider = "mute"\nprompt = "Say '
            'something."\n[[deliver]]\nto = "log"\n'
        ),
    )
    await home.start()
    assert (await home.agentctl("run", "notes", "--json")).code == 8
    return home


async def press(look, button, then="p.done"):
    """Press a button by keyboard; return what the page says then."""
    await look.locator(f"button:has-text('{button}')").first.focus()
    await look.keyboard.press("Enter")
    await look.wait_for_selector(then)
    return await look.inner_text(then)


async def fair(look, view):
    """Hold a view against axe-core, on a phone in the light and on a desk in the dark."""
    for width, scheme in ((390, "light"), (1200, "dark")):
        await look.set_viewport_size({"width": width, "height": 800})
        await look.emulate_media(color_scheme=scheme)
        await look.goto(look.base + view)
        assert await barriers(look) == []
        assert await look.evaluate("document.documentElement.scrollWidth") <= width
    await look.emulate_media(color_scheme="light")


async def test_approvals_page_shows_the_exact_call_to_approve_or_reject(look, daemon, shots):
    assert "1 call waits for your word" in await look.inner_text("main")
    answer = await look.inner_text("h1")
    assert "call waits for your word" in answer and "Last report" not in answer
    await fair(look, "/")
    assert "Approvals 1 wait" in await look.text_content("nav")
    icon = await look.get_attribute("link[rel=icon]", "href")
    assert icon in ("/static/icon-asking.svg", "/static/icon-wrong.svg")
    await look.click("text=notes, file_write")
    await look.wait_for_url("**/approvals#a*")
    assert await look.title() == "Approvals (1) · agentd"
    article = await look.inner_text("article.ask")
    assert (
        '"tool": "file_write"' in article
        and '"path": "notes.md"' in article
        and "digest" in article
    )
    assert "<script>document.title" in article and "\u202e" not in article
    assert await look.locator("article.ask script, article.ask img, article.ask b").count() == 0
    await take_picture(look, shots / "approvals-waiting.png")
    await fair(look, "/approvals")

    message = await press(look, "Approve once")
    user = pwd.getpwuid(os.getuid()).pw_name
    assert message.startswith("Approved:") and f"by {user}. The run of notes goes on" in message
    assert (await daemon.agentctl("inspect", "notes", "--follow", "--json")).json[
        "status"
    ] == "succeeded"
    assert (daemon.workspace / "notes.md").read_text() == HOSTILE
    (daemon.workspace / "notes.md").unlink()
    await look.goto(look.base + "/approvals")
    text = await look.inner_text("main")
    assert "Nothing waits for your word." in text and "used" in text
    assert "wait" not in await look.text_content("nav")
    await take_picture(look, shots / "approvals-answered.png")

    assert (await daemon.agentctl("run", "notes", "--json")).code == 8
    await look.goto(look.base + "/approvals")
    message = await press(look, "Reject")
    assert message.startswith("Rejected:") and "without it" in message
    assert (await daemon.agentctl("inspect", "notes", "--follow", "--json")).json[
        "status"
    ] == "succeeded"
    assert not (daemon.workspace / "notes.md").exists()

    assert (await daemon.agentctl("run", "notes", "--json")).code == 8
    await look.goto(look.base + "/approvals")
    await look.click("text=Allow for good")
    await look.wait_for_url("**/approvals/*?for=good")
    assert "+[[remembered]]" in await look.inner_text("main")
    await take_picture(look, shots / "approval-for-good.png")
    await press(look, "Allow for good")
    remembered_calls = (await daemon.agentctl("approvals", "--remembered", "--json")).json["items"]
    assert [item["tool"] for item in remembered_calls] == ["file_write"]


async def test_second_answer_to_an_approval_is_refused_with_a_message(look, daemon):
    name = (await daemon.agentctl("approvals", "--json")).json["items"][0]["id"]
    assert (await daemon.agentctl("reject", name)).code == 0
    answer = await look.evaluate(
        f"fetch('/approvals/{name}/approve', {{ method: 'POST' }}).then((each) => each.text())"
    )
    assert "cannot be answered any more" in answer and "Back to approvals" in answer
    assert not (daemon.workspace / "notes.md").exists()
    look.complaints.clear()  # the browser notes that an answer was not 200


async def test_pages_show_failed_deliveries_incidents_and_usage(look, daemon, shots):
    await daemon.agentctl("inspect", "mute", "--follow")
    (approval,) = (await daemon.agentctl("approvals", "--json")).json["items"]
    await daemon.agentctl("approve", approval["id"])
    await daemon.agentctl("inspect", "notes", "--follow")
    await look.goto(look.base + "/")
    tomorrow = await look.locator("section:has(h2:has-text('Tomorrow'))").inner_text()
    assert "08:30" in tomorrow and "notes" in tomorrow
    await look.click(".alarm a:has-text('routine mute')")
    await look.wait_for_url("**/deliveries#incident-*")
    await take_picture(look, shots / "incidents.png")
    await fair(look, "/deliveries")
    assert "reminds nobody" in await press(look, "Acknowledge")
    assert "known" in await look.inner_text("tr:has-text('routine mute')")
    assert [
        incident["acked"] is None
        for incident in (await daemon.agentctl("incidents", "--json")).json["items"]
    ] == [False]

    for button, message in (
        ("Try now", "being sent again"),
        ("Drop", "is dropped"),
        ("Send it", "being sent again"),
    ):
        await press(look, button, f"p.done:has-text('{message}')")
    await take_picture(look, shots / "deliveries-pending.png")
    (delivery,) = (await daemon.agentctl("deliveries", "--json", "--status", "pending")).json[
        "items"
    ]
    assert (delivery["routine"], delivery["target"]) == ("notes", "hook")

    await fair(look, "/usage")
    await look.set_viewport_size({"width": 390, "height": 800})
    await look.evaluate("document.querySelectorAll('details').forEach((part) => part.open = true)")
    hidden_widths = await look.evaluate(
        "[...document.querySelectorAll('.wide')].map((part) => part.scrollWidth - part.clientWidth)"
    )
    assert set(hidden_widths) == {0}, "on a phone no column is out of sight"
    await look.set_viewport_size({"width": 1200, "height": 800})
    await look.goto(look.base + "/usage")
    text = await look.inner_text("main")
    assert (
        "[budget] day = 0.5" in text and "[budget] day_tokens = 100000" in text and "notes" in text
    )
    assert await look.locator("svg[role=img][aria-label^='Dollars by day']").count() == 1
    assert "notes: $" in await look.locator("#dollars + .chart g title").last.text_content()
    await look.click("summary:has-text('Tokens by day as a table')")
    assert await look.locator("details[open] th[scope=row]").count() == 1
    await take_picture(look, shots / "usage-full.png")


async def test_the_live_view_lists_runs_under_way_until_they_end(look, daemon):
    await look.goto(look.base + "/live")
    await look.wait_for_selector("text=What happens next is listed here.")
    assert "notes" in await look.inner_text("#active")
    assert "Waiting for something" not in await look.inner_text("main")
    (approval,) = (await daemon.agentctl("approvals", "--json")).json["items"]
    await daemon.agentctl("approve", approval["id"])
    await look.wait_for_selector("#live li .run_ended:has-text('succeeded')")
    await look.wait_for_selector("#active", state="hidden")
    (daemon.workspace / "notes.md").unlink()


async def test_what_is_unfolded_stays_so_while_a_run_goes_on(look, daemon):
    (approval,) = (await daemon.agentctl("approvals", "--json")).json["items"]
    assert (await daemon.agentctl("reject", approval["id"])).code == 0
    await daemon.agentctl("inspect", "notes", "--follow")
    run = (await daemon.agentctl("run", "notes", "--input", "Milk.", "--json")).json
    async with look.expect_response("**/events?run=*"):
        await look.goto(f"{look.base}/runs/{run['id']}")
    await look.locator("#p2 summary").click()
    await look.locator("summary:text-is('Input')").click()
    (approval,) = (await daemon.agentctl("approvals", "--json")).json["items"]
    assert (await daemon.agentctl("approve", approval["id"])).code == 0
    await look.wait_for_selector("h1 .badge.succeeded")
    await look.wait_for_selector("summary:text-is('As Markdown')")  # one more that is folded
    unfolded = "[...document.querySelectorAll('main details[open]')].map(each => each.id)"
    assert await look.evaluate(unfolded) == ["p2", "input"]
