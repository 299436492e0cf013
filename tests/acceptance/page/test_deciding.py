"""What a person decides on the page, in a real browser: calls that wait, deliveries that did not
arrive, incidents.
"""

from tests.acceptance.page.conftest import HOSTILE, barriers, fixture, toml, with_browser

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


async def pressed(look, button, then="p.done"):
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


async def test_calls_that_wait_are_decided_with_exactly_what_they_would_do_before_ones_eyes(
    look, daemon, shots
):
    assert "1 call waits for your word" in await look.inner_text("main")
    await fair(look, "/")
    await look.click("text=notes, file_write")
    await look.wait_for_url("**/approvals#a*")
    assert await look.title() == "Approvals (1) · agentd"
    asked = await look.inner_text("article.ask")
    assert '"tool": "file_write"' in asked and '"path": "notes.md"' in asked and "digest" in asked
    assert "<script>document.title" in asked and "\u202e" not in asked
    assert await look.locator("article.ask script, article.ask img, article.ask b").count() == 0
    await look.screenshot(path=shots / "approvals-waiting.png", full_page=True)
    await fair(look, "/approvals")

    said = await pressed(look, "Approve once")
    assert said.startswith("Approved:") and "goes on" in said and "uid" in said
    assert (await daemon.agentctl("inspect", "notes", "--follow", "--json")).json[
        "status"
    ] == "succeeded"
    assert (daemon.workspace / "notes.md").read_text() == HOSTILE
    (daemon.workspace / "notes.md").unlink()
    await look.goto(look.base + "/approvals")
    text = await look.inner_text("main")
    assert "Nothing waits for your word." in text and "used" in text
    await look.screenshot(path=shots / "approvals-answered.png", full_page=True)

    assert (await daemon.agentctl("run", "notes", "--json")).code == 8
    await look.goto(look.base + "/approvals")
    said = await pressed(look, "Reject")
    assert said.startswith("Rejected:") and "without it" in said
    assert (await daemon.agentctl("inspect", "notes", "--follow", "--json")).json[
        "status"
    ] == "succeeded"
    assert not (daemon.workspace / "notes.md").exists()

    assert (await daemon.agentctl("run", "notes", "--json")).code == 8
    await look.goto(look.base + "/approvals")
    await look.click("text=Allow for good")
    await look.wait_for_url("**/approvals/*?for=good")
    assert "+[[remembered]]" in await look.inner_text("main")
    await look.screenshot(path=shots / "approval-for-good.png", full_page=True)
    await pressed(look, "Allow for good")
    remembered = (await daemon.agentctl("approvals", "--remembered", "--json")).json["items"]
    assert [each["tool"] for each in remembered] == ["file_write"]


async def test_who_was_slower_is_told_so(look, daemon):
    name = (await daemon.agentctl("approvals", "--json")).json["items"][0]["id"]
    assert (await daemon.agentctl("reject", name)).code == 0
    answer = await look.evaluate(
        f"fetch('/approvals/{name}/approve', {{ method: 'POST' }}).then((each) => each.text())"
    )
    assert "cannot be answered any more" in answer and "Back to approvals" in answer
    assert not (daemon.workspace / "notes.md").exists()
    look.complaints.clear()  # the browser notes that an answer was not 200


async def test_what_did_not_arrive_what_is_wrong_and_what_was_paid(look, daemon, shots):
    await daemon.agentctl("inspect", "mute", "--follow")
    (asked,) = (await daemon.agentctl("approvals", "--json")).json["items"]
    await daemon.agentctl("approve", asked["id"])
    await daemon.agentctl("inspect", "notes", "--follow")
    await look.goto(look.base + "/")
    tomorrow = await look.locator("section:has(h2:has-text('Tomorrow'))").inner_text()
    assert "08:30" in tomorrow and "notes" in tomorrow
    await look.click(".alarm a:has-text('routine mute')")
    await look.wait_for_url("**/deliveries#incident-*")
    await look.screenshot(path=shots / "incidents.png", full_page=True)
    await fair(look, "/deliveries")
    assert "reminds nobody" in await pressed(look, "Acknowledge")
    assert "known" in await look.inner_text("tr:has-text('routine mute')")
    assert [
        each["acked"] is None
        for each in (await daemon.agentctl("incidents", "--json")).json["items"]
    ] == [False]

    for button, said in (
        ("Try now", "being sent again"),
        ("Drop", "is dropped"),
        ("Send it", "being sent again"),
    ):
        await pressed(look, button, f"p.done:has-text('{said}')")
    await look.screenshot(path=shots / "deliveries-pending.png", full_page=True)
    (delivery,) = (await daemon.agentctl("deliveries", "--json", "--status", "pending")).json[
        "items"
    ]
    assert (delivery["routine"], delivery["target"]) == ("notes", "hook")

    await fair(look, "/usage")
    text = await look.inner_text("main")
    assert (
        "[budget] day = 0.5" in text and "[budget] day_tokens = 100000" in text and "notes" in text
    )
    assert await look.locator("svg[role=img][aria-label^='Dollars by day']").count() == 1
    assert "notes: $" in await look.locator("#dollars + .chart g title").last.text_content()
    await look.click("summary:has-text('Tokens by day as a table')")
    assert await look.locator("details[open] th[scope=row]").count() == 1
    await look.screenshot(path=shots / "usage-full.png", full_page=True)
