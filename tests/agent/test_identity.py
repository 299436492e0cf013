"""The identity of the agent, from files beside the config."""

import pytest

from tests.replaying import ReplayedApp


@pytest.fixture
def app(tmp_path):
    app = ReplayedApp(tmp_path)
    app.write("config.toml", '[agent]\nname = "Ada"\nuser_name = "Grace"\npersona = "Dry."\n')
    app.write_routine("daily", '[run]\nprompt = "Report."\n')
    return app


async def test_identity_files_stand_in_the_prompt_in_order_and_are_reread(app):
    app.write("SOUL.md", "Fond of numbers.\n")
    app.write("USER.md", "Grace sleeps late.\n")
    app.write("AGENT.md", "Never before noon.\n")
    async with app:
        section = (await app.parts.preview(app.engine.routines["daily"])).sections["identity"]
        assert "Ada" in section and "Grace" in section and "Dry." in section
        assert "Grace sleeps late.\n\nFond of numbers.\n\nNever before noon." in section
        (app.folder / "SOUL.md").unlink()
        section = (await app.parts.preview(app.engine.routines["daily"])).sections["identity"]
        assert "Grace sleeps late.\n\nNever before noon." in section


async def test_a_run_that_cannot_read_an_identity_file_names_the_file(app):
    (app.folder / "SOUL.md").write_bytes("Höflich.\n".encode("latin-1"))
    async with app:
        run = await app.run("daily")
        assert run.status == "failed"
        assert "SOUL.md" in run.detail and "is not UTF-8 text" in run.detail
