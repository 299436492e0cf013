"""A daemon in a container: its variables say where its files are and what asks which model."""

import pytest

from tests.acceptance.story import READY, Vendor

pytestmark = pytest.mark.process


async def test_variables_alone_name_the_files_and_the_model(home, tmp_path):
    home.routine("disks", '[run]\nprompt = "How full are the disks?"\n')
    run_time = tmp_path / "r"
    run_time.mkdir(mode=0o700)
    async with Vendor(["Half full."]) as vendor:
        home.env |= {
            "AGENTD_CONFIG": str(home.folder / "config.toml"),
            "AGENTD_STATE": str(home.state),
            "XDG_RUNTIME_DIR": str(run_time),
            "AGENTD__PROVIDER": "local",
            "AGENTD__TIMEZONE": "Asia/Tokyo",
            "AGENTD_PROVIDERS__LOCAL__KIND": "open_source",
            "AGENTD_PROVIDERS__LOCAL__MODEL": "local",
            "AGENTD_PROVIDERS__LOCAL__BASE_URL": f"{vendor.url}/v1",
            "AGENTD_DAEMON__MAX_CONCURRENT": "2",
        }
        checked = await home.run_process("agentd", "validate")
        assert checked.code == 0, checked.err
        assert "AGENTD_PROVIDERS__LOCAL__MODEL" in checked.out
        daemon = await home.spawn("agentd")
        while READY not in (line := (await daemon.stdout.readline()).decode()):
            assert line, (await daemon.stderr.read()).decode()
        status = (await home.run_process("agentctl", "status", "--json")).json
        assert status["zone"] == "Asia/Tokyo"
        assert status["socket"] == str(run_time / "agentd.sock")
        assert (home.state / "agentd.db").exists()
        run = await home.run_process("agentctl", "run", "disks")
        assert (run.code, "Half full." in run.out) == (0, True), run.err
        assert vendor.requests[0].body["model"] == "local"
        daemon.terminate()
        await daemon.communicate()
        assert daemon.returncode == 0
