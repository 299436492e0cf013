"""All faults of vendors at once cost little memory, and keep no other run from its time."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.acceptance.story import Home
from tests.acceptance.test_endless_answers import peak_memory
from tests.chaos.parts import FAULTY_PROVIDER, FAULTY_ROUTINE, FLOODS, VENDOR_FAULTS
from tests.fakes.flood import MEGABYTE, Flood
from tests.fakes.vendor import FakeVendor

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

ON_TIME = """
[trigger]
every = "2s"
[run]
mode = "script"
[[gather]]
name = "load"
tool = "sysinfo"
args = { parts = ["load"] }
"""


async def test_twenty_seven_faulty_vendors_at_once_need_less_than_200_mb(home: Home) -> None:
    assert len(VENDOR_FAULTS) + len(FLOODS) == 27
    async with contextlib.AsyncExitStack() as stack:
        urls = []
        for fault in VENDOR_FAULTS:
            vendor = FakeVendor([{**fault, "repeat": 100}], strict=False)
            urls.append((await stack.enter_async_context(vendor)).url)
        for kind in FLOODS:
            flood = Flood(kind, most=250 * MEGABYTE)
            urls.append((await stack.enter_async_context(flood)).url)
        names = [f"fault-{number}" for number in range(len(urls))]
        config = "".join(
            FAULTY_PROVIDER.format(name=name, url=url)
            for name, url in zip(names, urls, strict=True)
        )
        home.write("config.toml", config)
        home.write("policy.toml", 'version = 1\n[[rule]]\ntool = "sysinfo"\neffect = "allow"\n')
        for name in names:
            home.routine(name, FAULTY_ROUTINE.format(name=name))
        home.routine("on-time", ON_TIME)
        home.env["PYTHONUNBUFFERED"] = "1"  # so it is a fresh Python, with its own memory alone
        await home.start()
        started = await asyncio.gather(
            *(home.agentctl("run", name, "--detach", "--json") for name in names)
        )
        ends = [await home.until(result.json["id"], "run_ended") for result in started]
        peak = peak_memory(home.process.pid)
        slots = (await home.agentctl("slots", "on-time", "--json")).json["items"]
    assert not any("a fault of agentd itself" in (end["detail"] or "") for end in ends), ends
    assert peak < 200 * MEGABYTE
    # On a busy machine a run may take longer than the two seconds until the next slot.
    on_time_or_overlapped = {("ran", None), ("skipped", "overlap")}
    assert {(slot["outcome"], slot["reason"]) for slot in slots} <= on_time_or_overlapped, slots
    assert any(slot["outcome"] == "ran" for slot in slots), slots
