"""An input by hand as a user gives it: a text, a file, a pipe; with a daemon and without one."""

from __future__ import annotations

import pytest

SORT = '[run]\nprompt = "Sort the ticket."\n'


async def last_run(home):
    return (await home.agentctl("inspect", "last", "--json")).json


async def test_agentctl_run_gives_a_run_a_text_or_a_file(home):
    home.routine("sort", SORT)
    home.write("ticket.txt", "Ticket 8: no printer")
    await home.start()
    result = await home.agentctl("run", "sort", "--input", "Ticket 7: no disk")
    assert result.code == 0, result.err
    assert "Ticket 7: no disk" in result.out
    assert (await home.agentctl("run", "sort", "--input", "@ticket.txt", "--tainted")).code == 0
    run = await last_run(home)
    assert run["input"] == {"text": "Ticket 8: no printer", "tainted": True}
    assert "Ticket 8: no printer" in run["report"]
    assert "Ticket 8" in (await home.agentctl("inspect", "last")).out


async def test_agentd_once_gives_a_run_an_input_with_a_daemon_and_without_one(home):
    home.routine("sort", SORT)
    home.write("ticket.txt", "Ticket 9")
    result = await home.agentd("once", "sort", "--input", "@ticket.txt")
    assert (result.code, "Ticket 9" in result.out) == (0, True), result.err
    for arguments, problem in (
        (("--input", "@away.txt"), "agentd: --input @away.txt: away.txt cannot be read"),
        (("--tainted",), "agentd: --tainted says who may have written the --input; name one"),
    ):
        result = await home.agentd("once", "sort", *arguments)
        assert (result.code, problem in result.err) == (2, True), result.err
    await home.start()
    result = await home.agentd("once", "sort", "--input=@ticket.txt", "--tainted")
    assert (result.code, "Ticket 9" in result.out) == (0, True), result.err
    run = await last_run(home)
    assert (run["trigger"], run["input"]) == ("manual", {"text": "Ticket 9", "tainted": True})


@pytest.mark.process
async def test_agentctl_run_reads_a_pipe(home):
    home.routine("sort", SORT)
    await home.start()
    prefix = ("sh", "-c", 'printf "@10 of 12" | exec "$@"', "sh")
    process = await home.spawn(
        "agentctl", "--socket", home.socket, "run", "sort", "--input", "-", prefix=prefix
    )
    out, err = await process.communicate()
    assert (process.returncode, "@10 of 12" in out.decode()) == (0, True), err
