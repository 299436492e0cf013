"""The verbs that end in a browser: `agentctl ui` and `agentctl inspect RUN --html FILE`."""

from __future__ import annotations

import os
from contextlib import suppress

from daemon.control.call import DONE, NOT_SUCCEEDED, Call
from daemon.control.page.server import PageServer
from daemon.control.page.transcripts import transcript
from daemon.control.render import DIM


def serve(call: Call) -> int:
    """Serve the page on a loopback port until Ctrl-C."""
    try:
        server = PageServer(call.client.path, call.port or 0)
    except (OSError, OverflowError) as error:
        call.err.say(f"agentctl: port {call.port} cannot be used: {error}; leave --port out to have a free one taken")
        return NOT_SUCCEEDED
    with server, suppress(KeyboardInterrupt):  # from the first word on: whoever has read it may press Ctrl-C
        if call.json:
            call.say_json({"url": server.url})
        else:
            call.out.say(f"Open {server.url}")
            told = "The link is good for one browser, and the page for as long as this runs."
            call.err.say(call.err.paint(told, DIM))
        call.out.stream.flush()
        server.serve_forever(poll_interval=3600)  # it wakes up for what comes in, not to look around
    return DONE


def write(call: Call, run: str) -> int:
    """Write a run as a page that needs nothing besides itself."""
    text = transcript(call.client, run)
    try:
        # a transcript may be as private as what the run has read
        descriptor = os.open(call.html, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8", "replace"))
    except FileExistsError:
        call.err.say(f"agentctl: {call.html} is there already; name another file, or take that one away")
        return NOT_SUCCEEDED
    except OSError as error:
        call.err.say(f"agentctl: {call.html} cannot be written: {error.strerror}")
        return NOT_SUCCEEDED
    call.err.say(f"{call.html} holds the run, readable without agentd")
    return DONE
