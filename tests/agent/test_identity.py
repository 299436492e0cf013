"""Who the agent is: its owner's own words, from files beside the config."""

import pytest

from tests.inside import Home


@pytest.fixture
def home(tmp_path):
    made = Home(tmp_path)
    made.write("config.toml", '[agent]\nname = "Ada"\nuser_name = "Grace"\npersona = "Dry."\n')
    made.routine("daily", '[run]\nprompt = "Report."\n')
    return made


async def test_the_owners_files_stand_in_the_prompt_in_their_order_and_are_read_anew(home):
    home.write("SOUL.md", "Fond of numbers.\n")
    home.write("USER.md", "Grace sleeps late.\n")
    home.write("AGENT.md", "Never before noon.\n")
    async with home.open() as daemon:
        told = (await daemon.parts.context.preview(daemon.engine.routines["daily"])).sections[
            "identity"
        ]
        assert "Ada" in told and "Grace" in told and "Dry." in told
        assert "Grace sleeps late.\n\nFond of numbers.\n\nNever before noon." in told
        (home.folder / "SOUL.md").unlink()
        told = (await daemon.parts.context.preview(daemon.engine.routines["daily"])).sections[
            "identity"
        ]
        assert "Grace sleeps late.\n\nNever before noon." in told
