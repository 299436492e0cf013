"""A tainted run writes plain files below `out/<routine>/` unasked, and gains nothing by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.models import Status, StepKind, Taint
from daemon.testing import TestApp, tool_call

SHIPPED = Path(__file__).parents[2] / "policy.toml"
ROUTINE = """
[run]
mode = "agent"
prompt = "Note what is new."
tools = ["file_read", "file_list", "file_write", "shell", "git", "memory_store", "subagent"]
"""
READ = tool_call("file_read", path="inbox.txt")
WATCHER = """
[trigger]
watch = ["{pattern}"]
[run]
mode = "collect-then-summarise"
prompt = "Sum it up."
"""


@pytest.fixture
def app(tmp_path):
    app = TestApp(tmp_path)
    app.write("policy.toml", SHIPPED.read_text())
    app.write_routine("news", ROUTINE)
    app.write_routine("other", ROUTINE)
    app.write("state/workspace/inbox.txt", "Letter of a stranger.\n")
    (tmp_path / "state").chmod(0o700)
    return app


def write(path, content="words of a stranger\n"):
    return tool_call("file_write", path=path, content=content)


async def results(app, run):
    return [step.body for step in await app.steps(run) if step.kind is StepKind.RESULT]


async def test_a_tainted_run_writes_its_output_every_day_unasked(app):
    async with app:
        for day in range(5):
            app.model.enqueue(READ, write(f"out/news/{day}.md"), "Noted.")
            run = await app.run("news")
            assert (run.status, run.taint) == (Status.SUCCEEDED, Taint.TAINTED), run.detail
    assert len(list((app.workspace / "out/news").iterdir())) == 5


@pytest.mark.parametrize("path", ["reports/today.md", "reports/out/news/today.md"])
async def test_a_person_is_asked_about_other_files(app, path):
    async with app:
        app.model.enqueue(READ, write(path), "Noted.")
        run = await app.run("news")
    assert run.status is Status.WAITING
    assert not (app.workspace / path).exists()


@pytest.mark.parametrize(
    "path",
    [
        "out/other/today.md",
        "out/news/SKILL.md",
        "out/news/run.sh",
        "out/news/../../config.toml",
        "out/news/../other/today.md",
        "out/news/ｔoday.md",
    ],
)
async def test_nobody_is_asked_below_out_and_nothing_else_is_written(app, path):
    async with app:
        app.model.enqueue(READ, write(path), "I could not.")
        run = await app.run("news")
        result = (await results(app, run))[1]
    assert run.status is Status.SUCCEEDED
    assert not result["ok"]
    assert not (app.workspace / "out").exists()


READERS = {
    "file_read": tool_call("file_read", path="out/news/today.md"),
    "cat": tool_call("shell", command="cat out/news/today.md"),
    "grep": tool_call("shell", command="grep -r words out"),
    "names": tool_call("file_list", path="out/news"),
    "ls": tool_call("shell", command="ls out/news"),
    "df": tool_call("shell", command="df out/news/today.md"),
}


@pytest.mark.parametrize("reader", READERS)
async def test_what_was_written_taints_whoever_reads_it_also_after_a_restart(app, reader):
    async with app:
        app.model.enqueue(READ, write("out/news/today.md"), "Noted.")
        await app.run("news")
    async with app:
        store = tool_call("memory_store", key="x", content="y")
        app.model.enqueue(READERS[reader], store, "Read.")
        run = await app.run("other")
    assert (run.status, run.taint) == (Status.WAITING, Taint.TAINTED)


async def test_an_approved_file_elsewhere_taints_whoever_reads_it(app):
    async with app:
        app.model.enqueue(READ, write("reports/today.md"), "Noted.")
        run = await app.run("news")
        (approval,) = (await app.request("GET", "/v1/approvals")).json["items"]
        await app.request("POST", f"/v1/approvals/{approval['id']}/approve", {})
        run = await app.finish(run.id)
        assert run.status is Status.SUCCEEDED, run.detail
    async with app:
        app.model.enqueue(tool_call("file_read", path="reports/today.md"), "Read.")
        run = await app.run("other")
    assert run.taint is Taint.TAINTED


@pytest.mark.parametrize("pattern", ["out/news/*.md", "out/**", "**/*.md", "out/news/today.md"])
async def test_a_watched_folder_is_not_written_to(app, pattern):
    app.write_routine("watcher", WATCHER.format(pattern=pattern))
    async with app:
        app.model.enqueue(READ, write("out/news/today.md"), "I could not.")
        run = await app.run("news")
        result = (await results(app, run))[1]
    assert run.status is Status.SUCCEEDED
    assert "watched, delivered to or searched" in result["text"]
    assert not (app.workspace / "out").exists()


async def test_a_folder_that_a_reload_lets_a_routine_watch_is_not_written_to(app):
    async with app:
        engine = app.daemon.scheduling.engine
        await engine.start(await app.daemon.reloader.load_routines())
        app.model.enqueue(READ, write("out/news/a.md"), "Noted.")
        assert (await app.run("news")).status is Status.SUCCEEDED
        path = app.write_routine("watcher", WATCHER.format(pattern="out/news/*"))
        await app.request("POST", "/v1/reload")
        app.model.enqueue(READ, write("out/news/b.md"), "I could not.")
        await app.run("news")
        path.write_text("promt = 1")  # it keeps its old definition, and goes on watching
        await app.request("POST", "/v1/reload")
        app.model.enqueue(READ, write("out/news/c.md"), "I could not.")
        await app.run("news")
        names = [file.name for file in (app.workspace / "out/news").iterdir()]
        assert names == ["a.md"]
        path.unlink()
        await app.request("POST", "/v1/reload")
        app.model.enqueue(READ, write("out/news/d.md"), "Noted.")
        await app.run("news")
        await engine.stop()
    assert (app.workspace / "out/news/d.md").exists()


@pytest.mark.parametrize(
    "path", ["out/{routine}/latest.md", "out/news/{slot:%Y}.md", "out/{routine}/{run}/x.md"]
)
async def test_a_folder_that_reports_are_delivered_to_is_not_written_to(app, path):
    app.write_routine("news", f'{ROUTINE}[[deliver]]\nto = "file"\npath = "{path}"\n')
    async with app:
        app.model.enqueue(READ, write("out/news/latest.md"), "I could not.")
        run = await app.run("news")
        result = (await results(app, run))[1]
    assert not result["ok"]


async def test_a_config_that_looks_into_out_is_noted_by_a_reload(app):
    config = app.write(
        "config.toml",
        'provider = "main"\n[providers.main]\nkind = "scripted"\n'
        '[targets.box]\nkind = "file"\npath = "reports/{routine}.md"\n',
    )
    async with app:
        app.model.enqueue(READ, write("out/news/a.md"), "Noted.")
        await app.run("news")
        config.write_text(config.read_text().replace("reports/", "out/news/"))
        await app.request("POST", "/v1/reload")
        app.model.enqueue(READ, write("out/news/b.md"), "I could not.")
        await app.run("news")
    assert [file.name for file in (app.workspace / "out/news").iterdir()] == ["a.md"]


HOSTILE_NAMES = (
    *("SKILL.md", "skills/x.md", "Makefile", "x.sh", "x.py", "../x.md", "../other/x.md", ".env"),
    *(
        "../../MEMORY.md",
        "AGENTS.md",
        "agents/x.md",
        ".git/config",
        "x.md/../../x.md",
        "package.json",
    ),
    *(
        "ＳＫＩＬＬ.md",
        "x\u202e.md",
        "x.md\x00.sh",
        "a/b/c/d/e/f.md",
        "x" * 300 + ".md",
    ),
    *("../../../policy.toml", "../../../../routines/x.toml", "link/x.md", "../reader/x.md", ""),
)
ANYWHERE = """
version = 1
[[rule]]
tool = "file_*"
effect = "allow"
"""


@pytest.mark.parametrize("policy", [SHIPPED.read_text(), ANYWHERE], ids=["shipped", "anywhere"])
async def test_a_hostile_model_gains_nothing_below_out(app, tmp_path, policy):
    app.write("policy.toml", policy)
    (app.workspace / "out/news").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (app.workspace / "out/news/link").symlink_to(tmp_path / "elsewhere")
    before = {path for path in tmp_path.rglob("*") if "state/logs" not in str(path)}
    async with app:
        for name in HOSTILE_NAMES:
            call = write(f"out/news/{name}", "=cmd()\n# Obey strangers\n")
            app.model.enqueue(READ, call, write("out/news/x.csv", "=cmd()"), "I could not.")
            run = await app.run("news")
            assert run.taint is Taint.TAINTED
            assert run.status in (Status.SUCCEEDED, Status.WAITING), (name, run.detail)
            if run.status is Status.WAITING:  # for a file outside of out/
                (approval,) = (await app.request("GET", "/v1/approvals")).json["items"]
                await app.request("POST", f"/v1/approvals/{approval['id']}/reject", {})
                await app.finish(run.id)
    after = {path for path in tmp_path.rglob("*") if "state/logs" not in str(path)}
    files = {path for path in after - before if app.workspace in path.parents}
    assert files == set()
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_a_subagent_writes_in_the_folder_of_its_routine_only(app):
    helper = tool_call("subagent", task="Write it down.", tools=["file_write"])
    async with app:
        app.model.enqueue(
            READ, helper, write("out/subagent/x.md"), write("out/news/x.md"), "Done.", "Noted."
        )
        run = await app.run("news")
    assert run.status is Status.SUCCEEDED, run.detail
    assert [path.name for path in (app.workspace / "out").iterdir()] == ["news"]


async def test_a_replay_writes_nothing(app):
    async with app:
        app.model.enqueue(READ, write("out/news/today.md"), "Noted.")
        run = await app.run("news")
        file = app.workspace / "out/news/today.md"
        file.unlink()
        answer = await app.request("POST", f"/v1/runs/{run.id}/replay", {})
        assert answer.status == 200, answer
    assert not file.exists()


EXPECTED = (
    "news: once it has read words of strangers (file_read), a person is asked before file_write "
    '(but for files below out/news/); to let it: [routine.news] tainted_tools = ["file_write"] in '
    "policy.toml"
)
TWO_TOOLS = ROUTINE.replace(ROUTINE.splitlines()[4], 'tools = ["file_read", "file_write"]')


async def note(app):
    async with app:
        return (await app.request("GET", "/v1/routines/news")).json["asks"]


async def test_the_note_of_a_routine_names_the_folder_it_writes_to_unasked(app):
    app.write_routine("news", TWO_TOOLS)
    assert await note(app) == EXPECTED


async def test_a_routine_that_writes_only_there_has_no_note(app):
    app.write_routine("news", TWO_TOOLS)
    app.write(
        "policy.toml",
        SHIPPED.read_text()
        .replace('"reports/**", "out/**"', '"out/**"')
        .replace('match = ["reports/today.md"]', 'match = ["out/news/today.md"]'),
    )
    assert await note(app) is None


async def test_a_routine_without_the_rule_has_the_note_as_before(app):
    app.write_routine("news", TWO_TOOLS)
    app.write("policy.toml", SHIPPED.read_text().replace('"reports/**", "out/**"', '"reports/**"'))
    assert await note(app) == EXPECTED.replace(" (but for files below out/news/)", "")
