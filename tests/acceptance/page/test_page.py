"""What a person sees of the page in a real browser: every view, with keyboard and phone, whatever a
run has said.
"""

import re

import pytest

from tests.acceptance.page.conftest import HOSTILE, barriers, fixture, start_evil, with_browser

pytestmark = with_browser
VIEWS = (
    "/", "/routines", "/routines/evil", "/runs", "/runs/{run}", "/approvals", "/usage", (
        "/deliveries?over=1"
    ),
    "/memory", "/memory?q=evil", "/live",
)  # fmt: skip


@fixture(scope="module")
async def daemon(shared_home):
    """A daemon that has run the routine once; it is only looked at."""
    await start_evil(shared_home)
    return shared_home


async def shown(look, path, shots):
    await look.goto(look.base + path)
    name = re.sub(r"[^a-zA-Z0-9]+", "-", path.strip("/")).strip("-") or "today"
    await look.screenshot(path=shots / f"{name}.png", full_page=True)
    return await look.inner_text("main")


async def test_every_view_is_there_and_a_hostile_transcript_is_only_text(look, daemon, shots):
    for view in VIEWS:
        text = await shown(look, view.format(run=daemon.evil_run["id"]), shots)
        assert text.strip()
        assert "owned" not in await look.title()
        assert (
            await look.locator("main script, main img, main b, main a[href^=javascript]").count()
            == 0
        )
    await look.goto(f"{look.base}/runs/{daemon.evil_run['id']}")
    text = await look.inner_text("main")
    assert "<script>document.title = 'owned'</script>" in text
    assert "{{ 7 * 7 }}" in text and "\u202e" not in text
    assert "denied" not in await look.inner_text("#i1 .step.llm")
    assert "file_list" in text and "allowed by rule 1" in text
    assert len(list(shots.glob("*.png"))) >= len(VIEWS)


async def test_the_time_line_shows_what_ran_and_what_is_due(look):
    assert "Today and tomorrow" in await look.inner_text("h1")
    assert await look.locator("svg.marks line.mark.succeeded title").count() >= 1
    assert "due" in await look.locator("svg.marks .mark.due title").first.text_content()
    await look.locator("svg.marks a").first.focus()
    await look.keyboard.press("Enter")
    await look.wait_for_url("**/runs/*")
    assert "Transcript" in await look.inner_text("main")


async def test_the_heat_map_says_in_words_what_its_colours_say(look):
    await look.goto(look.base + "/routines")
    today = look.locator("table.heat tbody tr:first-child td.cell").last
    assert "succeeded" in await today.get_attribute("class")
    assert "1 succeeded" in await today.text_content()


async def test_memory_leads_to_the_place_in_its_run(look, daemon):
    await look.goto(look.base + "/memory?q=bold")
    await look.locator("text=to its place in the run").first.click()
    await look.wait_for_url("**/runs/*#i*")
    assert await look.locator(f"#i{look.url.rpartition('#i')[2]}").count() == 1


async def test_it_can_be_used_without_a_mouse(look):
    await look.keyboard.press("Tab")
    assert await look.evaluate("document.activeElement.textContent") == "To the content"
    await look.keyboard.press("Enter")
    assert await look.evaluate("document.activeElement.id") == "main"


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1200, "light")])
async def test_nobody_is_kept_out_by_how_they_look_at_it(browser, page, daemon, width, scheme):
    context = await browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme
    )
    window = await context.new_page()
    await window.goto(page.link)
    await window.wait_for_selector("h1:has-text('Today')")
    for view in VIEWS:
        await window.goto(page.base + view.format(run=daemon.evil_run["id"]))
        assert await barriers(window) == []
        assert (view, await window.evaluate("document.documentElement.scrollWidth")) <= (
            view,
            width,
        )
    await context.close()


async def test_a_run_written_as_a_page_needs_nothing_else_and_asks_for_nothing(
    browser, daemon, page, tmp_path
):
    file = tmp_path / "run.html"
    told = await daemon.agentctl("inspect", "evil", "--html", file)
    assert told.code == 0, told.err
    assert file.stat().st_mode & 0o777 == 0o600
    context = await browser.new_context(offline=True)
    window = await context.new_page()
    asked = []
    window.on("request", lambda request: asked.append(request.url))
    await window.goto(file.as_uri())
    assert asked == [file.as_uri()]
    assert HOSTILE.splitlines()[0] in await window.inner_text("main")
    assert await window.locator("a, script, img").count() == 0
    again = await daemon.agentctl("inspect", "evil", "--html", file)
    assert again.code == 1 and "is there already" in again.err
    await context.close()
