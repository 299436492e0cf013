"""Routines edited and created on the web page in a real browser, where `[ui] edit` is on."""

from urllib.parse import urlencode

import pytest

from tests.acceptance.page.conftest import (
    HOSTILE,
    barriers,
    fixture,
    take_picture,
    with_browser,
)
from tests.acceptance.page.test_deciding import fair
from tests.acceptance.page.test_gate import ask, enter

pytestmark = with_browser

TIDY = '# mine\n[trigger]\ncron = "0 7 * * *"\n[run]\nprompt = """\nTidy up.\n"""\n'


@fixture(scope="module")
async def shared_daemon(shared_home):
    """A daemon for all tests of this file."""
    write_definitions(shared_home)
    await shared_home.start()
    return shared_home


@fixture()
async def daemon(shared_daemon):
    """A daemon whose page may edit, with two routines."""
    write_definitions(shared_daemon)
    assert (await shared_daemon.agentctl("reload")).code == 0
    return shared_daemon


@fixture()
async def look(daemon, shared_look):
    return shared_look


def write_definitions(home):
    """Leave a config with which the page may edit, and two routines."""
    home.write("config.toml", "[ui]\nedit = true\n")
    for file in (home.folder / "routines").iterdir():
        file.unlink()
    home.routine("tidy", TIDY)
    home.routine("other", TIDY)
    home.file = home.folder / "routines" / "tidy.toml"


async def open_editor(look, name="tidy"):
    await look.goto(f"{look.base}/routines/{name}")
    await look.click("main a:has-text('Edit')")
    await look.wait_for_url(f"**/routines/{name}/edit")
    return await look.input_value("#text")


async def send(look, button, then):
    await look.click(f"button:has-text('{button}')")
    await look.wait_for_selector(then)
    return await look.inner_text(then)


async def test_faults_stand_beside_the_text_until_it_is_valid_and_saved(look, daemon, shots):
    text = await open_editor(look)
    assert text == TIDY
    await fair(look, "/routines/tidy/edit")
    faulty = text.replace("0 7", "0 25").replace("[run]", '[run]\nmodell = "x"')
    await look.fill("#text", faulty)
    message = await send(look, "Save", "#faults")
    assert "Nothing was written, for 2 faults" in message
    assert "Line 3: trigger.cron" in message and "Line 5: run.modell" in message
    assert await look.input_value("#text") == faulty
    await look.wait_for_selector("#faults:focus")
    assert daemon.file.read_text() == TIDY
    await take_picture(look, shots / "edit-faults.png")
    await look.wait_for_function("document.readyState === 'complete'")  # its script has run
    await look.click("text=Line 5")
    selection = "(() => { const t = document.activeElement; return t.value.slice(t.selectionStart,"
    assert await look.evaluate(f"{selection} t.selectionEnd); }})()") == 'modell = "x"'
    look.complaints.clear()  # the browser notes that an answer was 422

    await look.fill("#text", text.replace("0 7", "30 8"))
    assert await send(look, "Save", "p.done") == "Saved. It counts from now on."
    assert look.url.endswith("/routines/tidy?done=saved")
    assert "at 08:30" in await look.inner_text("main")
    assert daemon.file.read_text() == TIDY.replace("0 7", "30 8")
    await open_editor(look)
    assert await send(look, "Save", "p.done") == "Nothing was changed."


async def test_a_text_with_faults_is_accessible_at_each_width(look, daemon):
    await open_editor(look)
    await look.fill("#text", "[trigger\n")
    await send(look, "Save", "#faults")
    for width, scheme in ((390, "light"), (1280, "dark")):
        await look.set_viewport_size({"width": width, "height": 800})
        await look.emulate_media(color_scheme=scheme)
        assert await barriers(look) == []
        assert await look.evaluate("document.documentElement.scrollWidth") <= width
    look.complaints.clear()


async def test_a_file_that_was_changed_meanwhile_is_shown_before_it_is_replaced(look, daemon):
    text = await open_editor(look)
    daemon.file.write_text(TIDY + "# of somebody else\n")
    new_text = text.replace("Tidy up", "Clean up")
    await look.fill("#text", new_text)
    message = await send(look, "Save", "#faults")
    assert "tidy.toml was changed meanwhile" in message
    assert await look.input_value("#text") == new_text
    assert "# of somebody else" in await look.inner_text("pre.report")
    assert daemon.file.read_text() == TIDY + "# of somebody else\n"
    await send(look, "Save", "p.done")
    assert daemon.file.read_text() == new_text
    look.complaints.clear()  # the browser notes that an answer was 412


async def test_ends_of_lines_and_a_first_empty_line_stay(look, daemon):
    daemon.file.write_bytes(b"\n" + TIDY.replace("\n", "\r\n").encode())
    text = await open_editor(look)
    await look.fill("#text", text.replace("0 7", "30 8"))
    await send(look, "Save", "p.done")
    expected = TIDY.replace("0 7", "30 8").replace("\n", "\r\n")
    assert daemon.file.read_bytes() == b"\r\n" + expected.encode()


async def test_a_routine_is_created_from_a_recipe_or_from_an_empty_one(look, daemon, shots):
    await look.goto(look.base + "/routines")
    await look.click("text=New routine")
    await look.wait_for_url("**/new")
    await fair(look, "/new")
    await look.select_option("select[name=recipe]", "heartbeat")
    await look.click("text=Use it")
    await look.wait_for_url("**/new?recipe=heartbeat")
    await fair(look, "/new?recipe=heartbeat")
    assert await look.input_value("#name") == "heartbeat"
    text = await look.input_value("#text")
    assert text.startswith("# Says hello once")
    await take_picture(look, shots / "new-recipe.png")
    await send(look, "Create", "p.done")
    assert look.url.endswith("/routines/heartbeat?done=saved")
    assert (daemon.folder / "routines" / "heartbeat.toml").read_text() == text

    await look.goto(look.base + "/new")
    await look.fill("#name", "tidy")
    await look.fill("#text", TIDY)
    assert "there is a routine tidy already" in await send(look, "Create", "#faults")
    assert await look.input_value("#text") == TIDY
    await look.fill("#name", "sweep")
    await look.fill("#text", (await look.input_value("#text")).replace("Tidy", "Sweep"))
    await send(look, "Create", "p.done")
    rows = (await daemon.agentctl("audit", "--json")).json["items"]
    routines = [row["routine"] for row in rows if row["kind"] == "created"]
    assert routines == ["sweep", "heartbeat"]
    look.complaints.clear()


async def test_the_empty_routine_is_valid_but_for_its_prompt(look, daemon):
    await look.goto(look.base + "/new")
    await look.fill("#name", "mine")
    message = await send(look, "Create", "#faults")
    assert "run.prompt" in message and "for " not in message
    look.complaints.clear()


async def test_hostile_text_stays_text_and_hidden_characters_are_not_edited(look, daemon):
    hostile = TIDY.replace("Tidy up.", "</textarea><script>document.title = 'owned'</script>")
    daemon.file.write_text(hostile)
    assert await open_editor(look) == hostile
    assert await look.locator("main script").count() == 0
    await look.fill("#text", TIDY.replace("Tidy up.", "a\u202eb"))
    message = await send(look, "Save", "#faults")
    assert "Line 6" in message and "U+202E" in message
    assert daemon.file.read_text() == hostile
    daemon.file.write_text(TIDY + f"# {HOSTILE.splitlines()[1]}\n")
    await open_editor(look)
    assert "This page cannot edit the file" in await look.inner_text("#faults")
    assert await look.locator("button:has-text('Save')").count() == 0
    look.complaints.clear()


async def test_pause_on_a_card_stays_on_the_page_of_cards(look, daemon):
    await look.goto(look.base + "/routines")
    await look.click("article:has(h2:has-text('tidy')) button:has-text('Pause')")
    await look.wait_for_selector("article:has(h2:has-text('tidy')) .badge.paused")
    assert look.url == f"{look.base}/routines#r2"
    await look.click("article:has(h2:has-text('tidy')) button:has-text('Resume')")
    await look.wait_for_selector("article:has(h2:has-text('tidy')) button:has-text('Pause')")
    assert look.url == f"{look.base}/routines#r2"


def write_over_http(page, cookie, path, **fields):
    """Send a form as a browser with this cookie does; return status and text."""
    status, _, text = ask(page, "POST", path, urlencode(fields), Cookie=cookie, Origin=page.base)
    return status, text


@pytest.mark.parametrize("path", ["/new", "/routines/tidy/edit"])
async def test_a_form_without_the_cookie_or_from_elsewhere_writes_nothing(page, daemon, path):
    cookie = enter(page).split(";")[0]
    files = {file: file.read_text() for file in daemon.file.parent.iterdir()}
    form = urlencode({"name": "sweep", "text": TIDY})
    for headers in (
        {"Origin": page.base},
        {"Origin": page.base, "Cookie": f"agentd-{page.port}=guess"},
        {"Cookie": cookie},
        {"Cookie": cookie, "Origin": "http://evil.example"},
        {"Cookie": cookie, "Origin": page.base, "Sec_Fetch_Site": "cross-site"},
        {"Cookie": cookie, "Origin": page.base, "Host": "evil.example"},
    ):
        assert ask(page, "POST", path, form, **headers)[0] == 403
    assert {file: file.read_text() for file in daemon.file.parent.iterdir()} == files


async def test_a_form_that_no_browser_sends_is_answered_with_what_is_wrong(page, daemon):
    cookie = enter(page).split(";")[0]
    edit = "/routines/tidy/edit"
    status, text = write_over_http(page, cookie, edit, text=TIDY + "#", digest="a\r\nX: y")
    assert status == 422 and "If-Match" in text
    status, text = write_over_http(page, cookie, edit)
    assert status == 422
    status, text = write_over_http(page, cookie, "/new", name="../policy", text=TIDY)
    assert status == 409 and "is no name" in text
    status, text = write_over_http(page, cookie, "/new", name="", text=TIDY)
    assert status == 422 and "needs a name" in text
    status, text = write_over_http(page, cookie, edit, text="#" * 200_000, digest="0" * 64)
    assert status == 413 and "agentctl edit" in text
    assert write_over_http(page, cookie, edit, text="%" * 400_000)[0] == 413
    assert write_over_http(page, cookie, "/routines/nobody/edit", text=TIDY)[0] == 404
    assert daemon.file.read_text() == TIDY


async def test_a_page_that_may_not_edit_offers_it_nowhere_and_writes_nothing(page, daemon):
    cookie = enter(page).split(";")[0]
    daemon.write("config.toml", "# nothing is set\n")
    await daemon.agentctl("reload")
    for path in ("/routines", "/routines/tidy"):
        text = ask(page, "GET", path, Cookie=cookie)[2]
        assert "/new" not in text and "/edit" not in text
    for path in ("/new", "/routines/tidy/edit"):
        assert ask(page, "GET", path, Cookie=cookie)[0] == 303
        fields = {"name": "sweep", "text": TIDY + "# new\n", "digest": "0" * 64}
        status, text = write_over_http(page, cookie, path, **fields)
        assert status == 403 and "Nothing was written" in text
    assert sorted(file.name for file in daemon.file.parent.iterdir()) == ["other.toml", "tidy.toml"]
    assert daemon.file.read_text() == TIDY
