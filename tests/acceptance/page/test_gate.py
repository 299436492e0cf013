"""Who may look at the page: whoever holds the link, once, from a page of ours."""

import asyncio
import http.client
import signal
import socket

import pytest

from tests.acceptance.page.conftest import fixture, with_browser, write_evil

pytestmark = with_browser
LAST_LINE = "The link is good for one browser, and the page for as long as this runs.\n"


@fixture(scope="module")
async def daemon(shared_home):
    """A daemon that has not run anything, and is not to."""
    write_evil(shared_home)
    await shared_home.start()
    return shared_home


def ask(page, method, path, body=None, **headers):
    """Return the status, the headers and the text of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=120)
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, {"Host": f"127.0.0.1:{page.port}", **headers})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text  # headers by their names in any case


def enter(page):
    status, headers, text = ask(page, "POST", "/enter", page.token, Origin=page.base)
    assert status == 204, text
    return headers["Set-Cookie"]


async def test_the_link_lets_one_browser_in_and_only_once(page):
    cookie = enter(page)
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert ask(page, "GET", "/runs", Cookie=cookie.split(";")[0])[0] == 200
    status, _, text = ask(page, "POST", "/enter", page.token, Origin=page.base)
    assert (status, "used before" in text) == (403, True)


@pytest.mark.parametrize(
    "cookie", ["", "agentd=", "agentd=guess", "agentd=\xe9", "other=1; agentd", "agentd=a;" * 500]
)
async def test_without_the_cookie_nothing_is_shown(page, cookie):
    for path in ("/runs", "/events", "/memory?q=x", "/nothing"):
        status, _, text = ask(page, "GET", path, Cookie=cookie)
        assert status == 403 and "agentctl ui" in text and "evil" not in text
    assert ask(page, "POST", "/routines/evil/run", "", Origin=page.base, Cookie=cookie)[0] == 403
    status, _, text = ask(page, "GET", "/", Cookie=cookie)
    assert status == 200 and "evil" not in text


async def test_pages_of_others_reach_nothing(page, daemon):
    cookie = enter(page).split(";")[0]
    refused = [
        ask(page, "GET", "/runs", Cookie=cookie, Host=f"evil.example:{page.port}"),
        ask(page, "GET", "/runs", Cookie=cookie, Host="127.0.0.1"),
        ask(page, "GET", "/runs", Cookie=cookie, Origin="http://evil.example"),
        ask(page, "GET", "/runs", Cookie=cookie, Sec_Fetch_Site="cross-site"),
        ask(page, "POST", "/routines/evil/run", "", Cookie=cookie),
        ask(page, "POST", "/routines/evil/run", "", Cookie=cookie, Origin="null"),
        ask(
            page,
            "POST",
            "/routines/evil/run",
            "",
            Cookie=cookie,
            Origin=f"https://127.0.0.1:{page.port}",
        ),
        ask(page, "POST", "/routines/evil/run", "", Cookie=cookie, Origin="http://127.0.0.1:1"),
        ask(
            page,
            "POST",
            "/approvals/01ABCDEF/approve",
            "",
            Cookie=cookie,
            Origin="http://evil.example",
        ),
        ask(page, "POST", "/deliveries/1/drop", "", Cookie=cookie),
        ask(
            page,
            "POST",
            "/incidents/1/ack",
            "",
            Cookie=cookie,
            Sec_Fetch_Site="same-site",
            Origin=page.base,
        ),
    ]
    assert [status for status, _, _ in refused] == [403] * len(refused)
    assert (await daemon.agentctl("runs", "--json")).json["items"] == []


async def test_every_answer_keeps_scripts_frames_and_caches_out(page):
    cookie = enter(page).split(";")[0]
    for path in ("/", "/runs", "/nothing", "/static/page.mjs"):
        _, headers, _ = ask(page, "GET", path, Cookie=cookie)
        assert "script-src 'self'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert (headers["Referrer-Policy"], headers["Cache-Control"]) == ("same-origin", "no-store")


async def test_what_is_no_request_is_answered_with_the_same_headers(page):
    with socket.create_connection(("127.0.0.1", page.port), timeout=120) as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        head = connection.makefile("rb").read().partition(b"\r\n\r\n")[0].decode().lower()
    assert head.startswith("http/1.1 400")
    assert (
        "content-security-policy: default-src 'none'" in head and "cache-control: no-store" in head
    )


@pytest.mark.parametrize(
    "name", ["../gate.py", "..%2fgate.py", "/etc/passwd", "style.css/..", ".hidden", "nothing.css"]
)
async def test_only_our_own_files_are_handed_out(page, name):
    status, _, text = ask(page, "GET", f"/static/{name}")
    assert status == 404 and "token" not in text


async def test_rubbish_gets_an_answer_and_the_page_lives(page):
    cookie = enter(page).split(";")[0]
    asked = [
        ("GET", "/runs?cursor=%00&status=nonsense"),
        ("GET", "/runs/ZZZZZZZZ"),
        ("GET", "/routines/%00%ff"),
        ("GET", "/memory?q=" + "x" * 5000),
        ("GET", "/deliveries?cursor=-1"),
    ]
    for method, path in asked:
        status, _, text = ask(page, method, path, Cookie=cookie)
        assert status in (200, 404, 422), (path, status)
        assert "Traceback" not in text
    assert ask(page, "POST", "/nothing", "x=1", Cookie=cookie, Origin=page.base)[0] == 404
    assert ask(page, "POST", "/enter", "x" * 200_000, Origin=page.base)[0] == 413
    assert ask(page, "GET", "/runs", Cookie=cookie)[0] == 200
    assert await page.stop() == LAST_LINE


async def test_ctrl_c_ends_it_without_a_word(page):
    page.process.send_signal(signal.SIGINT)
    assert await page.process.wait() == 0


async def test_ctrl_c_ends_it_without_a_word_whatever_it_waits_for(page, daemon):
    cookie = enter(page).split(";")[0]
    live, view = (http.client.HTTPConnection("127.0.0.1", page.port, timeout=120) for _ in range(2))
    live.request("GET", "/events", headers={"Cookie": cookie})
    answer = live.getresponse()
    assert answer.readline() == b"event: following\n"
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        view.request("GET", "/runs", headers={"Cookie": cookie})
        page.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(120):
            _, err = await page.process.communicate()
    finally:
        daemon.process.send_signal(signal.SIGCONT)
        live.close()
        view.close()
    assert (page.process.returncode, err.decode()) == (0, LAST_LINE)


async def test_a_port_that_is_taken_is_told(page, daemon):
    told = await daemon.agentctl("ui", "--port", str(page.port))
    assert told.code == 1
    assert f"port {page.port} cannot be used" in told.err and "leave --port out" in told.err
