"""Access to the web page: one browser, by a link that works once, from no foreign site."""

import asyncio
import fcntl
import http.client
import os
import signal
import socket
import subprocess
import sys
import termios

import pytest

from daemon.web.command import tunnel_command
from tests.acceptance.page.conftest import Page, fixture, with_browser, write_evil

pytestmark = with_browser
NOBODY = 65534
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


async def test_enter_prints_a_link_for_another_browser(daemon):
    with Terminal(daemon) as terminal:
        first, second = Page(daemon), Page(daemon)
        first.take_link(terminal.read_until("Ctrl-C ends the page"))
        cookie = enter(first).split(";")[0]
        terminal.type("\n")
        second.take_link(terminal.read_until("Open http"))
        assert second.token != first.token
        other_cookie = enter(second).split(";")[0]
        for browser in (cookie, other_cookie):
            assert ask(first, "GET", "/runs", Cookie=browser)[0] == 200


class Terminal:
    """`agentctl ui` in front of a terminal of its own."""

    def __init__(self, home):
        self.controller, end = os.openpty()
        self.text = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "daemon.cli.main", "--socket", str(home.socket), "ui"],
            env=home.env,
            stdin=end,
            stdout=end,
            stderr=end,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(end)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.terminate()
        self.process.wait()
        os.close(self.controller)

    def type(self, text):
        os.write(self.controller, text.encode())

    def read_until(self, words):
        """Return what was printed since the last call, with the line that these words are in."""
        while not (words in self.text and self.text[self.text.index(words) :].count("\n")):
            self.text += os.read(self.controller, 4096).decode()
        text, self.text = self.text, ""
        return text


@pytest.mark.slow
@pytest.mark.parametrize(
    "cookie", ["", "agentd=", "agentd=guess", "agentd=\xe9", "other=1; agentd", "agentd=a;" * 500]
)
async def test_requests_without_the_cookie_are_refused(page, cookie):
    cookie = cookie.replace("agentd", f"agentd-{page.port}")
    for path in ("/runs", "/events", "/memory?q=x", "/nothing"):
        status, _, text = ask(page, "GET", path, Cookie=cookie)
        assert status == 403 and "agentctl ui" in text and "evil" not in text
    assert ask(page, "POST", "/routines/evil/run", "", Origin=page.base, Cookie=cookie)[0] == 403
    status, _, text = ask(page, "GET", "/", Cookie=cookie)
    assert status == 200 and "evil" not in text


@pytest.mark.slow
@pytest.mark.root
async def test_a_cookie_in_the_hands_of_another_user_opens_nothing(page):
    cookie = enter(page).split(";")[0]
    assert ask(page, "GET", "/runs", Cookie=cookie)[0] == 200
    request = f"GET /runs HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\nCookie: {cookie}\r\n\r\n"
    for host in ("127.0.0.1", "::ffff:127.0.0.1"):
        os.seteuid(NOBODY)  # the kernel notes the user when the socket is made
        try:
            connection = socket.create_connection((host, page.port))
        finally:
            os.seteuid(0)
        with connection:
            connection.sendall(request.encode())
            answer = connection.makefile().read()
        assert answer.startswith("HTTP/1.1 403 "), answer
        assert "run it as the user of this browser" in answer


async def test_requests_from_foreign_sites_are_refused(page, daemon):
    cookie = enter(page).split(";")[0]
    responses = [
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
    assert [status for status, _, _ in responses] == [403] * len(responses)
    assert (await daemon.agentctl("runs", "--json")).json["items"] == []


async def test_every_answer_forbids_foreign_scripts_frames_and_caching(page):
    cookie = enter(page).split(";")[0]
    for path in ("/", "/runs", "/nothing", "/static/page.mjs"):
        _, headers, _ = ask(page, "GET", path, Cookie=cookie)
        assert "script-src 'self'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert (headers["Referrer-Policy"], headers["Cache-Control"]) == ("same-origin", "no-store")


async def test_malformed_request_is_answered_with_the_security_headers(page):
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
async def test_static_route_serves_only_shipped_files(page, name):
    status, _, text = ask(page, "GET", f"/static/{name}")
    assert status == 404 and "token" not in text


async def test_invalid_requests_get_an_error_and_the_page_keeps_serving(page):
    cookie = enter(page).split(";")[0]
    requests = [
        ("GET", "/runs?cursor=%00&status=nonsense"),
        ("GET", "/runs/ZZZZZZZZ"),
        ("GET", "/routines/%00%ff"),
        ("GET", "/memory?q=" + "x" * 5000),
        ("GET", "/deliveries?cursor=-1"),
    ]
    for method, path in requests:
        status, _, text = ask(page, method, path, Cookie=cookie)
        assert status in (200, 404, 422), (path, status)
        assert "Traceback" not in text
    assert ask(page, "POST", "/nothing", "x=1", Cookie=cookie, Origin=page.base)[0] == 404
    assert ask(page, "POST", "/enter", "x" * 200_000, Origin=page.base)[0] == 413
    assert ask(page, "GET", "/runs", Cookie=cookie)[0] == 200
    assert await page.stop() == LAST_LINE


async def test_ctrl_c_ends_the_page_without_an_error(page):
    page.process.send_signal(signal.SIGINT)
    assert await page.process.wait() == 0


async def test_ctrl_c_ends_the_page_while_requests_are_open(page, daemon):
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


async def test_over_ssh_the_command_that_brings_the_page_is_printed(daemon):
    env = daemon.env
    daemon.env = {**env, "SSH_CONNECTION": "192.0.2.7 50022 192.0.2.1 2222", "LOGNAME": "ada"}
    try:
        page = await Page(daemon).start()
    finally:
        daemon.env = env
    err = await page.stop()
    command = f"ssh -N -L {page.port}:127.0.0.1:{page.port} -p 2222 ada@{os.uname().nodename}"
    assert err.splitlines()[-1] == f"  {command}"


@pytest.mark.parametrize(
    ("env", "end"),
    [
        ({"SSH_CONNECTION": "::1 5 ::1 22", "USER": "ada"}, ("ada@{host}",)),
        ({"SSH_CONNECTION": "nonsense"}, ("{host}",)),
        ({"SSH_CONNECTION": "::1 5 ::1 22;id", "USER": "a;b"}, ("'a;b@{host}'",)),
    ],
)
async def test_the_tunnel_command_names_what_is_known(env, end):
    host = os.uname().nodename
    words = " ".join(end).format(host=host)
    assert tunnel_command(8090, env) == f"ssh -N -L 8090:127.0.0.1:8090 {words}"


async def test_a_number_that_is_no_port_is_reported_in_one_sentence(daemon):
    result = await daemon.agentctl("ui", "--port", "99999")
    assert result.code == 1
    assert result.err == (
        "agentctl: port 99999 cannot be used: a port is a number from 0 to 65535; leave --port out "
        "to have a free one taken\n"
    )


async def test_a_port_in_use_is_reported(page, daemon):
    result = await daemon.agentctl("ui", "--port", str(page.port))
    assert result.code == 1
    assert f"port {page.port} cannot be used" in result.err and "leave --port out" in result.err
