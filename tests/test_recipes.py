"""The recipes of the README: pasted into a fresh installation they are accepted, allowed what they
gather, and run.
"""

import re
import shutil
import subprocess

import pytest

from daemon.models import Status
from tests.docs import README
from tests.replaying import ReplayedApp

FILES = dict(re.findall(r"```toml\n# (\S+\.toml)\n(.*?)```", README.read_text("utf-8"), re.DOTALL))
RECIPES = sorted(
    name.removeprefix("routines/").removesuffix(".toml")
    for name in FILES
    if name.startswith("routines/")
)


@pytest.fixture
def app(tmp_path):
    """A fresh installation: shipped policy and routines, with every recipe pasted beside them, and
    no model.
    """
    app = ReplayedApp(tmp_path)
    shipped = README.parent
    shutil.copytree(shipped / "routines", tmp_path / "routines", dirs_exist_ok=True)
    app.write("policy.toml", (shipped / "policy.toml").read_text("utf-8"))
    app.write("config.toml", f'provider = "offline"\n{FILES["config.toml"]}')
    app.write(
        "mail.url", "mailto://ada:secret@127.0.0.1:1?to=ada@example.org"
    )  # nobody listens there
    for name in RECIPES:
        app.write_routine(name, FILES[f"routines/{name}.toml"])
    return app


def test_there_are_the_five_that_people_ask_for():
    assert RECIPES == ["greeting", "invoices", "morning-mail", "sentinel", "week-in-git"]


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git: apt install git")
@pytest.mark.parametrize("name", RECIPES)
async def test_it_runs_as_it_stands_there(app, name):
    repository = app.state / "workspace" / "project"
    repository.mkdir(parents=True)
    for words in (
        "init -q",
        "-c user.name=Ada -c user.email=a@example.org commit -q --allow-empty -m Begin",
    ):
        subprocess.run(["git", *words.split()], cwd=repository, check=True)
    async with app:
        assert not app.faults
        run = await app.run(name)
        assert run.status is Status.SUCCEEDED, run.detail
        steps = await app.journal.runs.get_steps(run.id)
    results = [step.body for step in steps if step.kind == "result"]
    assert len(results) == (name != "invoices")  # by hand no file has landed
    assert all(result["ok"] for result in results), results
