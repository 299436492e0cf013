"""The recipes that are shipped as files: copied as they are into a fresh installation, with the
lines that their comments name, they are accepted, run, and ask nobody for anything.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from daemon.app.commands.init import shipped_folder
from daemon.app.commands.recipes import find_recipe, find_recipes, needed_lines
from daemon.app.commands.validate import examine
from daemon.definitions.routines.checks import TRIGGER_KEYS
from daemon.errors import Refused
from daemon.models import Run, Status, Taint
from daemon.runs.approvals.expected import expected_approvals
from daemon.store.slots import Claim
from daemon.testing import CONFIG, tool_call
from daemon.tools.registry import FunctionRegistry
from tests import docs
from tests.replaying import ReplayedApp

RECIPES = find_recipes()
MAILBOX = "mailto://ada:Xk3vQ9-zT@127.0.0.1:1?to=ada@example.org"  # nobody listens there
FEED = "<feed><entry><title>{name} 9.1</title><link href='{url}/9.1'/></entry></feed>"
RELEASES = ("https://github.com/curl/curl/releases/tag/9.1", "https://www.postgresql.org/9.1")

# What an agent answers, by recipe; a run without tools is answered by one sentence.
ANSWERS: dict[str, list[Any]] = {
    "releases": [
        tool_call(
            "report_items",
            items=[{"title": url.rpartition("/")[2], "url": url} for url in RELEASES],
        ),
        "Reported.",
    ],
    "research": [
        tool_call("file_list", path="notes"),
        tool_call("subagent", task="What does notes/roof.md decide? Quote it."),
        tool_call("file_read", path="notes/roof.md"),
        "'The roof is mended in May.'",
        "Decided: the roof is mended in May (notes/roof.md). Nothing is open.",
    ],
}
# What the event of a recipe brings along.
INPUTS: dict[str, Any] = {
    "invoices": {"paths": ["inbox/invoices/plumber.txt"]},
    "inbox-watch": {"paths": ["inbox/letter.txt"]},
    "day-advice": {
        "routine": "day-book",
        "run": "01M8",
        "status": "succeeded",
        "report": "The disk sda failed.",
    },
    "alert-triage": {"disk": "sda", "state": "failing"},
}


def install(app: ReplayedApp, name: str) -> str:
    """Write the recipe, with what its comment names, into an installation; return its text."""
    text = RECIPES[name].read_text("utf-8")
    policy = (shipped_folder() / "policy.toml").read_text("utf-8")
    app.write("policy.toml", f"{policy}\n{needed_lines(text, 'policy.toml')}")
    app.write("config.toml", f"{CONFIG}\n{needed_lines(text, 'config.toml')}")
    app.write("mail.url", MAILBOX)
    app.write_routine(name, text)
    return text


async def start(app: ReplayedApp, name: str) -> Run:
    """Start the recipe as its schedule or its event would."""
    routine = app.engine.routines[name]
    claim = Claim(
        routine=name,
        definition=routine.dump(),
        trigger=next(kind for kind in TRIGGER_KEYS if getattr(routine.trigger, kind)),
        slot=app.clock.now(),
        goal=routine.run.prompt,
        event="an event" if name in INPUTS else None,
        input=INPUTS.get(name),
    )
    (run,) = await app.journal.slots.claim([claim])
    assert run is not None
    await app.daemon.runs.queue.submit(run)
    return await app.finish(run.id)


def record_pages(app: ReplayedApp) -> list[str]:
    """Let http_request answer with recorded pages; return the list of addresses it is asked for."""
    addresses: list[str] = []

    async def http_request(url: str) -> dict[str, Any]:
        addresses.append(url)
        page = FEED.format(name=url.split("/")[2], url=url)
        return {"status": 200, "url": url, "type": "application/atom+xml", "body": page}

    registry = FunctionRegistry()
    registry.register("http_request", "Ask a web server.", http_request)
    app.daemon.tools.registry.replace(registry, registry)
    return addresses


def write_workspace(folder: Path) -> None:
    """Make what the recipes look at: notes, files that have landed, a repository."""
    for file, text in (
        ("notes/roof.md", "The roof is mended in May."),
        ("inbox/invoices/plumber.txt", "80 euros until Friday."),
        ("inbox/letter.txt", "Dear Ada."),
    ):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, "utf-8")
    repository = folder / "project"
    repository.mkdir()
    for words in (
        "init -q",
        "-c user.name=Ada -c user.email=a@example.org commit -q --allow-empty -m Begin",
    ):
        subprocess.run(["git", *words.split()], cwd=repository, check=True)


def test_there_are_ten_recipes_besides_the_shipped_routines():
    assert sum(path.parent.name == "examples" for path in RECIPES.values()) >= 10
    assert {"daily-report", "heartbeat", "inbox-watch"} <= set(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_each_recipe_begins_with_what_it_is_for_and_what_it_needs(name):
    text = RECIPES[name].read_text("utf-8")
    assert text.startswith("# ")
    if RECIPES[name].parent.name == "examples":
        head = text.partition("\ndescription = ")[0]
        assert "# In config.toml:" in head
        assert "# In policy.toml:" in head
    assert 'to = "desktop"\n' not in text, "there may be no screen"


@pytest.mark.parametrize("name", RECIPES)
def test_each_recipe_is_in_the_readme_and_the_docs(name):
    file = f"{RECIPES[name].parent.name}/{name}.toml"
    assert f"]({file})" in docs.README.read_text("utf-8")
    assert f"](../{file})" in (docs.ROOT / "docs/recipes.md").read_text("utf-8")


@pytest.mark.parametrize("name", RECIPES)
def test_each_recipe_passes_validate_with_the_lines_that_it_names(name, tmp_path):
    app = ReplayedApp(tmp_path)
    install(app, name)
    if name == "day-advice":
        app.write_routine("day-book", RECIPES["day-book"].read_text("utf-8"))
    checkup = examine(tmp_path / "config.toml", env={}, state=tmp_path / "state")
    assert checkup.faults == []
    assert checkup.notes == []


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git: apt install git")
@pytest.mark.parametrize("name", RECIPES)
async def test_each_recipe_runs_as_it_is_and_asks_nobody(name, tmp_path):
    app = ReplayedApp(tmp_path)
    install(app, name)
    if name == "day-advice":
        app.write_routine("day-book", RECIPES["day-book"].read_text("utf-8"))
    write_workspace(app.workspace)
    async with app:
        addresses = record_pages(app)
        assert not app.faults
        routine, policy = app.engine.routines[name], app.daemon.settings.policy
        assert str(expected_approvals(routine, policy)) == ""
        app.model.enqueue(*ANSWERS.get(name, ["All is well."]))
        run = await start(app, name)
        assert run.status is Status.SUCCEEDED, run.detail
        steps = await app.steps(run)
        results = [step.body for step in steps if step.kind == "result"]
        gather_count = len(routine.gather)
        assert len(results) >= gather_count
        assert all(result["ok"] for result in results), results
        deliveries = await app.deliver()
        assert [delivery.target for delivery in deliveries] == [
            target.to for target in reversed(routine.deliver)
        ]
        assert not app.model.remaining
        if name == "releases":
            assert addresses == [gather.args["url"] for gather in routine.gather]


@pytest.mark.skipif(
    Path("/run/systemd/system").exists() or any(Path("/var/log/journal").glob("*/system*.journal")),
    reason="needs a machine without a systemd journal",
)
async def test_a_sentinel_without_a_journal_reports_that_it_sees_nothing(tmp_path):
    app = ReplayedApp(tmp_path)
    install(app, "sentinel")
    text = (tmp_path / "config.toml").read_text("utf-8")
    app.write("config.toml", text.replace('provider = "scripted"', 'provider = "offline"'))
    async with app:
        run = await start(app, "sentinel")
        assert (run.status, run.silent) == (Status.SUCCEEDED, False)
        assert "there is no systemd journal here" in (run.report or "")
        assert "systemd is not running here" in (run.report or "")
        assert [delivery.target for delivery in await app.deliver()] == ["mail"]


async def test_the_release_watcher_mails_news_only_and_is_never_held(tmp_path):
    app = ReplayedApp(tmp_path)
    install(app, "releases")
    async with app:
        addresses = record_pages(app)
        app.model.enqueue(*ANSWERS["releases"])
        first = await start(app, "releases")
        assert (first.status, first.silent) == (Status.SUCCEEDED, False)
        assert all(url.rpartition("/")[2] in (first.report or "") for url in RELEASES)
        app.advance(hours=1)
        second = await start(app, "releases")  # both pages are as they were
        assert second.status is Status.SKIPPED
        assert [run.taint for run in (first, second)] == [Taint.TAINTED] * 2
        assert len(addresses) == 4, "each page once in each run"
        assert await app.journal.approvals.find() == []
        assert len(await app.deliver()) == 1


async def test_the_agent_of_the_docs_reads_both_pages_and_mails_news_only(tmp_path):
    text = (docs.ROOT / "docs/recipes.md").read_text("utf-8")
    part = text.partition("### An agent that fetches pages itself")[2]
    routine, rule = re.findall(r"```toml\n(.*?)```", part, re.DOTALL)[:2]
    app = ReplayedApp(tmp_path)
    policy = (shipped_folder() / "policy.toml").read_text("utf-8")
    app.write("policy.toml", f"{policy}\n{rule}")
    app.write("config.toml", f'{CONFIG}\n[targets.mail]\nkind = "mail"\nurl_file = "mail.url"\n')
    app.write("mail.url", MAILBOX)
    app.write_routine("pages", routine)
    checkup = examine(tmp_path / "config.toml", env={}, state=tmp_path / "state")
    assert (checkup.faults, checkup.notes) == ([], [])
    urls = tomllib.loads(rule)["rule"][0]["urls"]
    reads = [tool_call("http_request", url=url) for url in urls]
    async with app:
        addresses = record_pages(app)
        runs = []
        for titles in (["A road is mended"], ["A road is mended", "A tree fell"], ["A tree fell"]):
            items = [{"title": title} for title in titles]
            app.model.enqueue(*reads, tool_call("report_items", items=items), "Reported.")
            runs.append(await start(app, "pages"))
            app.advance(hours=24)
        assert [run.status for run in runs] == [Status.SUCCEEDED] * 3, runs[0].detail
        assert [run.silent for run in runs] == [False, False, True]
        assert "A tree fell" in (runs[1].report or "")
        assert "road" not in (runs[1].report or "")
        assert addresses == urls * 3
        assert await app.journal.approvals.find() == []
        mails = [delivery for delivery in await app.deliver() if delivery.report.text]
        assert [(mail.target, mail.run) for mail in mails] == [
            ("mail", run.id) for run in (runs[1], runs[0])
        ]
        app.model.enqueue(tool_call("report_items", items=[{"title": "Made up"}]), "Reported.")
        assert (await start(app, "pages")).status is Status.FAILED


def test_an_unknown_recipe_is_refused_with_the_names_that_there_are():
    with pytest.raises(Refused, match=r'no recipe \'mail-reprot\'; did you mean "mail-report"\?'):
        find_recipe("mail-reprot")
    with pytest.raises(Refused) as error:
        find_recipe("nothing-like-it")
    assert all(name in str(error.value) for name in RECIPES)
