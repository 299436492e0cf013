"""Live updates of the web page in a real browser."""

import asyncio

from tests.acceptance.page.conftest import fixture, with_browser

pytestmark = with_browser


@fixture()
async def daemon(shared_daemon):
    """A daemon that has run the routine, so that its model has nothing left to say."""
    return shared_daemon


@fixture()
async def look(shared_look):
    return shared_look


async def test_a_run_started_by_a_button_is_followed_to_its_end(look, daemon):
    await look.goto(look.base + "/routines/evil")
    await look.click("text=Run now")
    await look.wait_for_url("**/runs/*")
    # the script is used up: it fails
    await look.wait_for_selector("h1 .badge:not(.running):not(.queued)")
    assert "failed" in await look.inner_text("h1")
    await look.goto(look.base + "/routines/evil")
    await look.click("text=Pause")
    await look.wait_for_selector("h1 .badge.paused")
    await look.click("text=Resume")
    await look.wait_for_selector("text=Pause")


async def test_the_live_view_shows_events_as_plain_text(look, daemon):
    await look.goto(look.base + "/live")
    await look.wait_for_selector("text=Waiting for something to happen.")
    end_of_run = look.wait_for_selector("#live li .run_ended")
    start = asyncio.create_task(daemon.agentctl("run", "evil", "--detach"))
    await end_of_run
    await start
    assert await look.locator("#live script, #live img").count() == 0
    assert "failed" in await look.inner_text("#live")


async def test_keyboard_focus_survives_a_refresh_of_the_page(look, daemon):
    async with look.expect_response("**/events"):  # a page that does not follow yet misses the run
        await look.reload()
    await look.locator("table.line a[href='/routines/evil']").focus()
    ended_run = await daemon.agentctl("run", "evil", "--json")
    await look.wait_for_selector(f"main a[href='/runs/{ended_run.json['id']}']", state="attached")
    await look.wait_for_selector("a[href='/routines/evil']:focus")


async def test_page_reports_a_stopped_daemon_and_recovers(look, daemon):
    await daemon.stop()
    answer = await look.goto(look.base + "/runs")
    assert answer.status == 503
    assert "No daemon answers" in await look.inner_text("main")
    await daemon.start()
    answer = await look.goto(look.base + "/runs")
    assert answer.status == 200
    look.complaints.clear()  # that the page was not there is what this is about


async def test_an_open_page_says_that_the_daemon_is_gone_and_goes_on_with_the_next(look, daemon):
    async with look.expect_response("**/events"):
        await look.goto(look.base + "/")
    await daemon.stop()
    await look.wait_for_selector("#gone")
    await daemon.start()
    await look.wait_for_selector("#gone", state="detached")
    ended_run = await daemon.agentctl("run", "evil", "--json")
    await look.wait_for_selector(f"main a[href='/runs/{ended_run.json['id']}']", state="attached")
    look.complaints.clear()


async def test_the_live_view_goes_on_with_the_next_daemon(look, daemon):
    await look.goto(look.base + "/live")
    await look.wait_for_selector("text=Waiting for something to happen.")
    await daemon.stop()
    await look.wait_for_selector("text=This list goes on when it is started again.")
    await daemon.start()
    await look.wait_for_selector("text=Waiting for something to happen.")
    await daemon.agentctl("run", "evil", "--detach")
    await look.wait_for_selector("#live li .run_ended")
    look.complaints.clear()


async def test_a_page_says_what_the_daemon_refuses_and_does_not_ask_again(look, daemon):
    window = await look.context.new_page()
    await window.add_init_script(
        "window.streams = []; window.EventSource = class extends EventSource {"
        " constructor(...words) { super(...words); window.streams.push(this); } };"
    )
    frame = 'event: refused\ndata: {"detail": "readers may not see that"}\n\n'
    await window.route(
        "**/events*", lambda route: route.fulfill(content_type="text/event-stream", body=frame)
    )
    closed = "window.streams.map((stream) => stream.readyState === EventSource.CLOSED)"
    await window.goto(look.base + "/")
    await window.wait_for_selector("#gone:has-text('it says no: readers may not see that')")
    assert await window.evaluate(closed) == [True]
    await window.goto(look.base + "/live")
    await window.wait_for_selector("#live-state:has-text('says no: readers may not see that')")
    assert await window.evaluate(closed) == [True]
    await window.close()
