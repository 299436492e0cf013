"""Two thousand webhooks at once cost neither memory that stays nor a slot of another routine."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from daemon.definitions.paths import hooks_socket_for
from tests.acceptance.story import Home
from tests.api.harness import ask

REQUESTS = 2_000
BODY = json.dumps({"text": "x" * 20_000}).encode()


def resident_memory(pid: int) -> int:
    """Return how many bytes a process holds in memory now (VmRSS of proc(5))."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert resident
    return int(resident[1]) * 1024


async def send(socket: Path, number: int) -> int:
    """Send a webhook, again where the daemon takes no connection for now; return the status."""
    while True:
        try:
            head = {"webhook-id": f"m-{number}"}
            return (await ask(socket, "POST", "/v1/hooks/door", BODY, head)).status
        except (OSError, asyncio.IncompleteReadError, IndexError):
            await asyncio.sleep(0.05)


@pytest.mark.soak
@pytest.mark.process
@pytest.mark.timeout(900)
async def test_a_flood_of_webhooks_leaves_memory_and_other_routines_as_they_were(
    home: Home,
) -> None:
    home.env = {**home.env, "PYTHONUNBUFFERED": "1"}  # a fresh Python, with its own memory alone
    home.write("policy.toml", 'version = 1\n[[rule]]\ntool = "sysinfo"\neffect = "allow"\n')
    gather = '[[gather]]\nname = "now"\ntool = "sysinfo"\nargs = { parts = ["load"] }\n'
    home.routine("often", '[trigger]\nevery = "2s"\n[run]\nmode = "script"\n' + gather)
    home.routine("door", '[trigger]\nwebhook = true\n[run]\nprompt = "Hi"\n')
    await home.start()
    socket = hooks_socket_for(home.socket)
    for number in range(50):  # what the first requests import stays
        await send(socket, -1 - number)
    before = resident_memory(home.pid)
    statuses = Counter(await asyncio.gather(*(send(socket, number) for number in range(REQUESTS))))
    assert set(statuses) <= {202, 409, 429, 503}, statuses
    assert statuses[202], statuses
    for _ in range(600):  # until the runs of the flood have ended
        after = resident_memory(home.pid)
        if after <= 1.5 * before:
            break
        await asyncio.sleep(0.1)
    assert after <= 1.5 * before, f"{before // 2**20} MiB before, {after // 2**20} MiB after"
    slots = (await home.agentctl("slots", "often", "--json")).json["items"]
    assert not [slot for slot in slots if slot["outcome"] == "missed"]
