"""Every view of the web page in a real browser: with keyboard and phone, with hostile
transcripts.
"""

import json
import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from daemon.cli.render import format_local_time, format_relative_time
from tests.acceptance.page.conftest import HOSTILE, barriers, fixture, take_picture, with_browser

pytestmark = with_browser
VIEWS = (
    "/", "/routines", "/routines/evil", "/runs", "/runs/{run}", "/approvals", "/usage", (
        "/deliveries?over=1"
    ),
    "/memory", "/memory?q=evil", "/live",
)  # fmt: skip


@fixture()
async def daemon(shared_daemon):
    """A daemon that has run the routine once; it is only looked at."""
    return shared_daemon


@fixture()
async def look(shared_look):
    return shared_look


async def open_view(look, path, shots):
    await look.goto(look.base + path)
    name = re.sub(r"[^a-zA-Z0-9]+", "-", path.strip("/")).strip("-") or "today"
    await take_picture(look, shots / f"{name}.png")
    return await look.inner_text("main")


async def test_every_view_loads_and_shows_a_hostile_transcript_as_plain_text(look, daemon, shots):
    for view in VIEWS:
        text = await open_view(look, view.format(run=daemon.evil_run["id"]), shots)
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


async def test_the_time_line_shows_past_runs_and_due_slots(look):
    assert await look.locator("h2:has-text('Today and tomorrow')").count() == 1
    assert await look.locator("svg.marks line.mark.succeeded title").count() >= 1
    assert "due" in await look.locator("svg.marks .mark.due title").first.text_content()
    await look.locator("svg.marks a").first.focus()
    await look.keyboard.press("Enter")
    await look.wait_for_url("**/runs/*")
    assert "Transcript" in await look.inner_text("main")


async def test_today_answers_first_whether_all_is_well_and_shows_the_newest_report(look, daemon):
    answer = await look.inner_text("h1")
    assert answer.startswith("Today\nAll is well. Last report ")
    assert await look.title() == "Today: all is well · agentd"
    section = look.locator("section:has(h2:has-text('The report of evil'))")
    assert await section.locator("h2 a").get_attribute("href") == f"/runs/{daemon.evil_run['id']}"
    assert "no address below works" in await section.inner_text()
    assert await section.locator(".prose a, .prose img, .prose b").count() == 0


async def test_a_run_shows_its_report_rendered_and_its_markdown_folded(look, daemon):
    await look.goto(f"{look.base}/runs/{daemon.evil_run['id']}")
    section = look.locator("section:has(h2:has-text('Report'))")
    assert "hxxp://203[.]0[.]113[.]9/x.png" in await section.inner_text()
    await section.locator("summary").click()
    assert "http://203.0.113.9/x.png" in await section.inner_text()


async def test_the_heat_map_names_each_outcome_in_words(look):
    await look.goto(look.base + "/routines")
    today = look.locator("table.heat tbody tr:first-child td.cell").last
    assert "succeeded" in await today.get_attribute("class")
    assert "1 succeeded" in await today.text_content()


async def test_a_routine_is_a_card_with_its_last_outcome_and_its_buttons(look, daemon):
    await look.goto(look.base + "/routines")
    card = look.locator("article.card")
    text = await card.inner_text()
    assert "08:30" in text and "succeeded" in text and "Next" in text
    assert await card.locator("button").all_text_contents() == ["Run evil", "Pause evil"]
    assert await card.locator("dd a").get_attribute("href") == f"/runs/{daemon.evil_run['id']}"
    assert await look.locator("table.heat tbody tr:first-child td.cell").count() == 7


async def test_a_routine_is_shown_as_it_was_written_with_its_defaults_folded(look, daemon):
    await look.goto(look.base + "/routines/evil")
    text = await look.inner_text("main")
    assert '[trigger]\ncron = "30 8 * * *"' in text and "trigger.settle" not in text
    await look.click("summary:has-text('With all defaults')")
    assert "trigger.settle" in await look.inner_text("main")


async def test_relative_times_tick_in_the_words_of_the_server(look):
    seconds = [0, 0.4, -0.4, 1, -3.14, 9.9, 10, -59.4, 60, 3599, -3600, 3725, 36_000, 86_399, -2e5]
    words = await look.evaluate(
        f"import('/static/times.mjs').then((times) => {seconds}.map(times.relative))"
    )
    now = datetime.now(UTC)
    assert words == [
        format_relative_time(now + timedelta(seconds=number), now) for number in seconds
    ]
    await look.evaluate(
        "document.querySelector('[data-since]').dataset.since ="
        " new Date(Date.now() - 7200_000).toISOString()"
    )
    await look.wait_for_selector("[data-since]:has-text('2 h ago')")


async def test_clock_times_get_their_day_once_it_is_not_today_any_more(look):
    zone = ZoneInfo("Europe/Berlin")
    now = datetime(2026, 11, 24, 12, tzinfo=zone)
    times = [now + timedelta(days=days) for days in (0, 1, -1, -6, 6, -7, 19, 30, 400, -400)]
    days = [[f"{at:%H:%M %Z}", at.date().isoformat(), now.date().isoformat()] for at in times]
    words = await look.evaluate(
        "import('/static/times.mjs').then((times) =>"
        f" {days}.map((parts) => times.localTime(...parts)))"
    )
    assert words == [format_local_time(at, now) for at in times]
    time_element = look.locator("time[data-day]").first
    tail = (await time_element.text_content())[-9:]
    await time_element.evaluate(
        "(time) => { const day = new Date(Date.now() - 3 * 86400_000);"
        " time.dataset.day = day.toISOString().slice(0, 10); time.id = 'old'; }"
    )
    await look.wait_for_function(
        "() => /^(Mon|Tue|Wed|Thu|Fri|Sat|Sun) /.test(document.getElementById('old').textContent)"
    )
    assert (await look.text_content("#old")).endswith(tail)


async def test_the_line_of_the_present_moves_along_the_time_line(look):
    await look.evaluate("document.querySelector('line.now').setAttribute('x1', '0%')")
    await look.wait_for_function(
        """() => {
          const { dataset, x1 } = document.querySelector("line.now");
          const [begin, end] = [dataset.begin, dataset.end].map(Date.parse);
          const left = 100 * (Date.now() - begin) / (end - begin);
          return Math.abs(x1.baseVal.valueInSpecifiedUnits - left) < 0.1;
        }"""
    )


async def test_a_memory_hit_links_to_its_step_in_the_run(look, daemon):
    await look.goto(look.base + "/memory?q=bold")
    await look.locator("text=to its place in the run").first.click()
    await look.wait_for_url("**/runs/*#i*")
    assert await look.locator(f"#i{look.url.rpartition('#i')[2]}").count() == 1


async def test_page_is_usable_by_keyboard(look):
    await look.keyboard.press("Tab")
    assert await look.evaluate("document.activeElement.textContent") == "To the content"
    await look.keyboard.press("Enter")
    assert await look.evaluate("document.activeElement.id") == "main"


async def test_what_is_remembered_fits_a_phone(look, daemon, shots, tmp_path):
    item = {
        "item": "servers/" + "a-long-key-" * 4,
        "text": "The backup of the house runs at night. " * 8,
        "category": "conversation",
        "created": "2026-11-20T08:30:00+00:00",
        "updated": "2026-11-20T08:30:00+00:00",
    }
    file = tmp_path / "memory.jsonl"
    file.write_text(f'{{"form": "agentd-memory/1"}}\n{json.dumps(item)}\n')
    result = await daemon.agentctl("memory", "import", file)
    assert result.code == 0, result.err
    usual = look.viewport_size
    await look.set_viewport_size({"width": 390, "height": 800})
    await open_view(look, "/memory", shots)
    hidden = (
        "document.querySelector('.wide').scrollWidth - document.querySelector('.wide').clientWidth"
    )
    assert await look.evaluate(hidden) == 0, "no column is out of sight"
    lines = (
        "label => { const range = document.createRange();"
        " range.selectNodeContents(label.firstChild); return range.getClientRects().length; }"
    )
    assert await look.locator("label:has-text('Search')").evaluate(lines) == 1
    await look.set_viewport_size(usual)


async def test_calls_without_a_price_are_counted_once(look):
    await look.goto(look.base + "/usage")
    assert (await look.inner_text("main")).count("without a price") == 1


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1200, "light")])
async def test_views_are_accessible_at_each_width_and_colour_scheme(look, daemon, width, scheme):
    usual = look.viewport_size
    await look.set_viewport_size({"width": width, "height": 800})
    await look.emulate_media(color_scheme=scheme)
    for view in VIEWS:
        await look.goto(look.base + view.format(run=daemon.evil_run["id"]))
        assert await barriers(look) == []
        assert (view, await look.evaluate("document.documentElement.scrollWidth")) <= (view, width)
    await look.emulate_media(color_scheme="light")
    await look.set_viewport_size(usual)


async def test_exported_html_of_a_run_loads_no_other_resource(browser, daemon, tmp_path):
    file = tmp_path / "run.html"
    result = await daemon.agentctl("inspect", "evil", "--html", file)
    assert result.code == 0, result.err
    assert file.stat().st_mode & 0o777 == 0o600
    context = await browser.new_context(offline=True)
    window = await context.new_page()
    requested_urls = []
    window.on("request", lambda request: requested_urls.append(request.url))
    await window.goto(file.as_uri())
    assert requested_urls == [file.as_uri()]
    assert HOSTILE.splitlines()[0] in await window.inner_text("main")
    assert await window.locator("a, script, img").count() == 0
    again = await daemon.agentctl("inspect", "evil", "--html", file)
    assert again.code == 1 and "is there already" in again.err
    await context.close()
