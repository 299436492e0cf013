"""The banner that the daemon prints at its start."""

from daemon.app.banner import MAX_ROUTINES


async def test_thousands_of_routines_are_counted_rather_than_listed(home):
    for number in range(MAX_ROUTINES + 12):
        home.routine(f"r{number:03}", '[run]\nprompt = "x"\n')
        home.routine(f"bad{number:03}", "nope = 1\n")
    home.routine("l" * 100, '[run]\nprompt = "x"\n')
    await home.start()
    assert "and 13 more: agentctl list" in home.output
    assert "and 12 more that are invalid: agentctl list" in home.output
    assert all(len(line) < 160 for line in home.output.splitlines() if " r0" in line)
