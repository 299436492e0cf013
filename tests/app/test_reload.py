"""Definitions are read again after they change, and a bad file changes nothing."""

import asyncio
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from daemon.app.definition_watcher import DefinitionWatcher, watch_zone
from daemon.definitions.file_versions import version_of
from daemon.errors import ConfigError, Fault, StoreFull
from daemon.store.outbox import OutboxRepository
from daemon.system.watch import DirectoryWatcher
from daemon.testing import CONFIG, FakeClock, TestApp
from tests.acceptance.story import Vendor
from tests.cli.agentctl import agentctl
from tests.delivery.receivers import Receiver
from tests.replaying import ReplayedApp


class Definitions:
    def __init__(self, *faults):
        self.read_count = asyncio.Semaphore(0)
        self.times = 0
        self.faults = list(faults)

    async def __call__(self, versions):
        self.times += 1
        self.read_count.release()
        if self.faults:
            raise self.faults.pop()

    async def times_read(self, count):
        async with asyncio.timeout(60):
            for _ in range(count):
                await self.read_count.acquire()


async def start_watcher(definitions, *folders):
    reloads = DefinitionWatcher(definitions, lambda: folders, DirectoryWatcher(wake_every=0.05))
    reloads.start(await reloads.note_files())
    return reloads


async def wait_until_idle(reloads):
    async with asyncio.timeout(60):
        while reloads._task and not reloads._task.done():
            await asyncio.sleep(0)


async def test_a_burst_of_changes_is_read_once(tmp_path):
    definitions = Definitions()
    reloads = await start_watcher(definitions, tmp_path)
    for n in range(20):
        (tmp_path / f"{n}.toml").write_text("x")
    await definitions.times_read(1)
    assert definitions.times == 1
    reloads.close()


async def test_a_change_during_a_reload_causes_one_more_reload(tmp_path):
    has_entered, may_go_on = asyncio.Event(), asyncio.Event()
    times = []

    async def slow(versions):
        times.append(1)
        has_entered.set()
        await may_go_on.wait()

    reloads = await start_watcher(slow, tmp_path)
    reloads.reload_now()
    await has_entered.wait()
    reloads.reload_now()
    reloads.reload_now()
    may_go_on.set()
    await wait_until_idle(reloads)
    assert len(times) == 2
    reloads.close()


async def test_changes_are_taken_up_at_once_where_someone_waits_for_them(tmp_path):
    fault = Fault(file="a", key="b", found="c", problem="d")
    definitions = Definitions(ConfigError(fault))
    reloads = await start_watcher(definitions, tmp_path)
    await reloads.take_up_changes()
    assert definitions.times == 0, "nothing has changed"
    (tmp_path / "a.toml").write_text("x")
    await asyncio.gather(reloads.take_up_changes(), reloads.take_up_changes())
    assert definitions.times == 1
    reloads.close()
    await reloads.take_up_changes()  # and does not wait for what never comes


async def test_who_waits_for_changes_waits_for_a_reload_under_way(tmp_path):
    has_entered, may_go_on = asyncio.Event(), asyncio.Event()

    async def slow(versions):
        has_entered.set()
        await may_go_on.wait()

    reloads = await start_watcher(slow, tmp_path)
    reloads.reload_now()
    await has_entered.wait()
    waits = [asyncio.create_task(reloads.take_up_changes()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(wait.done() for wait in waits)
    waits[0].cancel()  # as that of a client who has gone: the reload goes on
    may_go_on.set()
    await waits[1]
    reloads.close()


async def test_nobody_waits_for_a_look_that_a_stop_has_broken_off(tmp_path):
    has_entered = asyncio.Event()

    async def endless(versions):
        has_entered.set()
        await asyncio.Event().wait()

    reloads = await start_watcher(endless, tmp_path)
    reloads.reload_now()
    await has_entered.wait()
    wait = asyncio.create_task(reloads.take_up_changes())
    await asyncio.sleep(0)
    reloads.close()
    await wait


async def test_a_reload_works_after_a_failed_reload(tmp_path):
    definitions = Definitions(
        ConfigError(Fault(file="a", key="b", found="c", problem="d")), RuntimeError("broken")
    )
    reloads = await start_watcher(definitions, tmp_path)
    for _ in range(3):
        reloads.reload_now()
        await definitions.times_read(1)
        await wait_until_idle(reloads)
    assert definitions.times == 3
    reloads.close()


@pytest.mark.slow
async def test_a_reload_that_failed_by_no_fault_of_a_file_is_tried_again(tmp_path):
    """The files are noted before they are read: without a change of one, nothing would be read."""
    definitions = Definitions(RuntimeError("can't start new thread"))
    reloads = DefinitionWatcher(
        definitions, lambda: [tmp_path], DirectoryWatcher(wake_every=0.05), retry=0
    )
    reloads.start(await reloads.note_files())
    (tmp_path / "a.toml").write_text("x")
    await definitions.times_read(2)
    await wait_until_idle(reloads)
    assert definitions.times == 2
    reloads.close()


@pytest.mark.slow
async def test_files_that_could_not_be_listed_are_read_later(tmp_path):
    definitions = Definitions()
    errors = []

    def folders():
        if errors:
            raise errors.pop()
        return [tmp_path]

    reloads = DefinitionWatcher(definitions, folders, DirectoryWatcher(wake_every=0.05), retry=0)
    reloads.start(await reloads.note_files())
    errors.append(MemoryError())
    (tmp_path / "a.toml").write_text("x")
    await definitions.times_read(1)
    await wait_until_idle(reloads)
    assert not errors
    reloads.close()


@pytest.mark.slow
async def test_a_folder_that_appears_later_is_watched(tmp_path):
    definitions = Definitions()
    reloads = await start_watcher(definitions, tmp_path, tmp_path / "routines")
    (tmp_path / "routines").mkdir()
    await definitions.times_read(1)
    await wait_until_idle(reloads)
    (tmp_path / "routines" / "a.toml").write_text("x")
    await definitions.times_read(1)
    reloads.close()


async def test_changes_during_a_reload_are_read_again(tmp_path):
    definitions = Definitions()
    reloads = DefinitionWatcher(definitions, lambda: [tmp_path], DirectoryWatcher(wake_every=0.05))
    folders = await reloads.note_files()
    (tmp_path / "a.toml").write_text("x")
    reloads.start(folders)
    await definitions.times_read(1)
    reloads.close()


@pytest.mark.slow
async def test_unchanged_definitions_are_not_read_again(tmp_path):
    definitions = Definitions()
    (tmp_path / "a.toml").write_text("x")
    (tmp_path / "state").mkdir()
    reloads = await start_watcher(definitions, tmp_path)
    (tmp_path / "state" / "a").touch()
    (tmp_path / "agentd.db-wal").write_text("x")
    (tmp_path / "stderr").write_text("a line that the reload would write again")
    async with asyncio.timeout(60):
        while reloads._task is None:  # called when the watching began
            await asyncio.sleep(0.01)
    await wait_until_idle(reloads)
    assert definitions.times == 0
    reloads.close()


@pytest.mark.slow
async def test_a_routine_that_is_a_link_is_read_again_when_its_file_changes(tmp_path):
    definitions, elsewhere = Definitions(), tmp_path / "dotfiles"
    elsewhere.mkdir()
    (elsewhere / "a.toml").write_text("x")
    (tmp_path / "routines").mkdir()
    (tmp_path / "routines/a.toml").symlink_to("../dotfiles/a.toml")
    reloads = await start_watcher(definitions, tmp_path / "routines")
    (elsewhere / "a.toml").write_text("yy")
    await definitions.times_read(1)
    reloads.close()


async def test_concurrent_reloads_apply_a_change_once(tmp_path):
    app = ReplayedApp(tmp_path)
    app.write("config.toml", "")
    async with app, app.daemon.tasks:
        daemon = app.daemon
        await daemon.scheduling.engine.start(await daemon.reloader.load_routines())
        app.write_routine("bye", '[trigger]\nevery = "1h"\n[run]\nprompt = "x"\n')
        by_request = daemon.reloader.reload_by_request
        views = await asyncio.gather(by_request(), by_request())
        await daemon.scheduling.engine.stop()
    assert [view["added"] for view in views] == [["bye"], []]


async def test_a_requested_reload_names_what_the_daemon_has_just_taken_up_by_itself(
    tmp_path: Path,
) -> None:
    app = ReplayedApp(tmp_path)
    app.write("config.toml", "")
    text = '[trigger]\nevery = "1h"\n[run]\nprompt = "x"\n'
    app.write_routine("early", text)
    no_changes = {
        "added": [],
        "changed": [],
        "removed": [],
        "files": [],
        "restart": [],
        "faults": [],
    }
    async with app, app.daemon.tasks:
        engine, reloader = app.daemon.scheduling.engine, app.daemon.reloader
        await engine.start(await reloader.load_routines())
        assert await reloader.reload_by_request() == no_changes
        app.write_routine("early", text.replace("x", "y"))
        app.write_routine("brief", text)
        await reloader.reload()
        (tmp_path / "routines/brief.toml").unlink()
        app.write_routine("fresh", text)
        await reloader.reload()
        changes = await reloader.reload_by_request()
        assert changes == {**no_changes, "added": ["fresh"], "changed": ["early"]}
        assert await reloader.reload_by_request() == no_changes
        await engine.stop()


async def test_of_etc_only_a_change_of_the_time_zone_is_noticed(tmp_path):
    etc, rung = tmp_path / "etc", asyncio.Semaphore(0)
    etc.mkdir()
    zones = tmp_path / "usr/share/zoneinfo"
    (etc / "localtime").symlink_to(zones / "Europe/Berlin")
    watch_task = asyncio.create_task(
        watch_zone(rung.release, env={}, root=tmp_path, check_every=0.01)
    )
    await asyncio.sleep(0)  # it has read the zone
    (etc / "passwd").write_text("x")
    (etc / "localtime.new").symlink_to(zones / "Asia/Tokyo")
    async with asyncio.timeout(60):
        (etc / "localtime.new").rename(etc / "localtime")
        await rung.acquire()
        (etc / "localtime").unlink()
        await rung.acquire()  # UTC now
    assert rung.locked()
    watch_task.cancel()


# --- what was written a moment ago


async def test_a_routine_written_a_moment_ago_is_found_at_once(tmp_path: Path) -> None:
    app = TestApp(tmp_path)
    async with app:
        app.write_routine("fresh", '[run]\nprompt = "hi"\n')
        assert (await app.request("POST", "/v1/routines/fresh/run", {})).status == 200
        app.write_routine("misspelt", '[run]\npromt = "hi"\n')
        answer = await app.request("POST", "/v1/routines/misspelt/run", {})
        assert (answer.status, answer.json["code"]) == (409, "refused")
        assert 'did you mean "prompt"?' in answer.json["detail"]


async def test_the_answer_about_an_unknown_routine_names_the_faults_of_the_files(
    tmp_path: Path,
) -> None:
    app = TestApp(tmp_path)
    app.write_routine("misspelt", '[run]\npromt = "hi"\n')
    async with app:
        app.write("config.toml", 'provider = "nowhere"\n')
        app.write_routine("fresh", '[run]\nprompt = "hi"\n')
        answer = await app.request("POST", "/v1/routines/fresh/run", {})
        assert answer.status == 404
        assert "there is no routine 'fresh'" in answer.json["detail"]
        assert "Not all that the files say is in force" in answer.json["detail"]
        assert 'found "nowhere"' in answer.json["detail"]
        async with app.serve_api() as socket:
            listing = await agentctl(socket, "list")
        assert (
            'config.toml:1: provider: no such provider in [providers] (found "nowhere")'
            in listing.out
        )


@pytest.mark.parametrize("is_in_file", [True, False])
async def test_what_waits_for_a_target_is_tried_again_once_its_address_was_mended(
    tmp_path: Path, is_in_file: bool
) -> None:
    table = '[targets.hook]\nkind = "webhook"\n{}[targets.other]\nkind = "webhook"\n'
    table += 'url = "http://127.0.0.1:1/other"\n'
    app = TestApp(tmp_path, config=CONFIG)

    def set_address(url: str) -> None:
        app.write("hook.url", url)
        key = 'url_file = "hook.url"\n' if is_in_file else f'url = "{url}"\n'
        app.write("config.toml", CONFIG + table.format(key))

    set_address("http://127.0.0.1:1/hook")
    app.write_routine("hello", HELLO_TO_HOOKS)
    async with app, Receiver().open() as receiver:
        app.model.enqueue("Hello.")
        await app.run("hello")
        assert [delivery.status for delivery in await app.deliver()] == ["pending", "pending"]
        await app.daemon.reloader.reload()
        await app.deliver()
        assert receiver.posts == [], "nothing has changed, so the wait goes on"
        set_address(receiver.url)
        await app.daemon.reloader.reload()
        assert app.daemon.delivery.outbox._wake_event.is_set()
        other, hook = await app.deliver()
        assert (hook.status, hook.attempts) == ("delivered", 2)
        assert (other.status, other.attempts) == ("pending", 1), "its address is as it was"


HELLO_TO_HOOKS = """
[run]
prompt = "Say hello."
[[deliver]]
to = "hook"
[[deliver]]
to = "other"
"""


async def test_a_changed_key_is_taken_up_by_a_reload(tmp_path: Path) -> None:
    config = CONFIG + '[providers.gpt]\nkind = "openai"\nmodel = "m"\napi_key_file = "gpt.key"\n'
    app = TestApp(tmp_path, config=config)
    app.write("gpt.key", "sk-old-0123456789")
    async with app:
        settings = app.daemon.settings
        earlier = settings.providers
        await app.daemon.reloader.reload()
        assert settings.providers is earlier  # with its connections
        app.write("gpt.key", "sk-new-0123456789")
        await app.daemon.reloader.reload()
        assert settings.providers.keys["gpt"] == "sk-new-0123456789"
        assert settings.providers is not earlier


async def test_changed_tools_of_ones_own_are_taken_up_by_a_reload(tmp_path: Path) -> None:
    app = TestApp(tmp_path, config=CONFIG + '[tools]\nfiles = ["mine.py"]\n')
    app.write("tools/mine.py", "def nap() -> str:\n    return 'rested'\n")
    rule = 'version = 1\n[[rule]]\ntool = "{}"\neffect = "allow"\n'
    app.write("policy.toml", rule.format("nap"))
    app.write_routine("rest", '[run]\nprompt = "Rest."\n[[gather]]\nname = "n"\ntool = "nap"\n')
    async with app:
        names = app.daemon.tools.registry.names
        before = list(names())
        app.write("tools/mine.py", "def doze() -> str:\n    return 'rested well'\n")
        app.write("policy.toml", rule.format("doze"))
        await app.daemon.reloader.reload()
        assert set(names()) == {*before, "doze"} - {"nap"}
        assert 'no such tool (found "nap")' in str(app.faults["rest"])
        app.write("tools/mine.py", "def shell() -> str:\n    return 'not this one'\n")
        app.write("policy.toml", "version = 1\n")
        with pytest.raises(ConfigError, match="there is already a tool called shell"):
            await app.daemon.reloader.reload()
        assert "doze" in names()


async def test_a_reload_names_config_policy_keys_and_tools_that_have_changed(
    tmp_path: Path,
) -> None:
    config = (
        CONFIG
        + """[tools]\nfiles = ["mine.py", "other.py"]
[providers.gpt]\nkind = "openai"\nmodel = "m"\napi_key_file = "gpt.key"
[targets.hook]\nkind = "webhook"\nurl_file = "hook.url"\n"""
    )
    app = TestApp(tmp_path, config=config)
    app.write("gpt.key", "sk-old-0123456789")
    app.write("hook.url", "https://example.org/old")
    for name in ("mine", "other"):
        app.write(f"tools/{name}.py", f"def {name}() -> str:\n    return 'rested'\n")
    async with app, app.serve_api() as socket:

        async def reload() -> str:
            return (await agentctl(socket, "reload")).out.strip()

        assert await reload() == "nothing has changed"
        app.write("gpt.key", "sk-new-0123456789")
        assert await reload() == "taken up: the key of [providers.gpt]"
        app.write("hook.url", "https://example.org/new")
        assert await reload() == "taken up: the address of [targets.hook]"
        app.write("tools/mine.py", "def mine() -> str:\n    return 'rested well'\n")
        assert await reload() == "taken up: tools/mine.py"
        app.write("policy.toml", 'version = 1\nautonomy = "readonly"\n')
        await app.daemon.reloader.reload()  # as the daemon does by itself
        app.write("config.toml", config + "[agent]\nname = 'Ada'\n")
        assert await reload() == "taken up: policy.toml, config.toml"
        assert await reload() == "nothing has changed"


async def test_a_reload_names_secrets_in_files_that_count_from_the_next_start_on(
    tmp_path: Path,
) -> None:
    config = (
        CONFIG
        + """[search]\nkind = "tavily"\napi_key_file = "search.key"
[memory]\nembedder = "openai_compatible"\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"
api_key_file = "memory.key"
[mcp.x]\nurl = "http://127.0.0.1:1/"\napi_key_file = "mcp.key"
[chat.bot]\nkind = "telegram"\nallow = [1]\ntoken_file = "bot.token"
[targets.hook]\nkind = "webhook"\nurl = "https://example.org/"\nsecret_file = "hook.secret"\n"""
    )
    keys = {
        "search.key": "search.api_key_file",
        "memory.key": "memory.api_key_file",
        "mcp.key": "mcp.x.api_key_file",
        "bot.token": "chat.bot.token_file",
    }
    app = TestApp(tmp_path, config=config)
    for name in keys:
        app.write(name, "old-0123456789")
    app.write("hook.secret", "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3")
    async with app, app.serve_api() as socket:
        for name, key in keys.items():
            app.write(name, "new-0123456789")
            with capture_logs() as logs:
                answer = await agentctl(socket, "reload")
            assert answer.err.strip() == f"restart agentd for this to count: {key}"
            (event,) = [event for event in logs if event["event"] == "definitions.reloaded"]
            assert event["restart"] == [key]
            app.write(name, "old-0123456789")
            await app.daemon.reloader.reload()
        app.write("hook.secret", "whsec_YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjAx")
        answer = await agentctl(socket, "reload")
        assert (answer.out.strip(), answer.err) == ("taken up: the secret of [targets.hook]", "")
        app.write("search.key", "new-0123456789")
        app.write("config.toml", config.replace('"tavily"', '"wikipedia"'))
        answer = await agentctl(socket, "reload")
        assert answer.err.strip() == "restart agentd for this to count: search"


async def test_the_log_names_a_policy_that_came_into_force(tmp_path: Path) -> None:
    app = TestApp(tmp_path, config=CONFIG)
    async with app:
        app.write("policy.toml", 'version = 1\nautonomy = "readonly"\n')
        with capture_logs() as logs:
            await app.daemon.reloader.reload()
            await app.daemon.reloader.reload()  # nothing has changed: no line
        events = [event for event in logs if event["event"] == "definitions.reloaded"]
        assert [event["files"] for event in events] == [["policy.toml"]]


@pytest.mark.parametrize("text", ["", " \n\t\n"])
async def test_a_config_that_is_empty_all_at_once_is_refused(tmp_path: Path, text: str) -> None:
    app = TestApp(tmp_path, config=CONFIG)
    async with app:
        config = app.daemon.settings.config
        app.write("config.toml", text)
        with pytest.raises(ConfigError, match="is empty now, so the settings of before stay"):
            await app.daemon.reloader.reload()
        assert app.daemon.settings.config is config
        app.write("config.toml", "# all by default\n")
        await app.daemon.reloader.reload()
        assert app.daemon.settings.config is not config


@pytest.mark.slow
async def test_a_file_that_the_definitions_name_is_read_again_when_it_changes(tmp_path):
    workspace, file = tmp_path / "workspace", tmp_path / "workspace" / "holidays.ics"
    workspace.mkdir()
    file.write_text("a")
    in_force = {file: version_of(file)}
    definitions = Definitions()
    reloads = DefinitionWatcher(
        definitions, list, DirectoryWatcher(wake_every=0.05), named_files=lambda: in_force
    )
    reloads.start(await reloads.note_files())
    (workspace / "report.md").write_text("of no interest")
    file.write_text("not what it was")  # and of no use, so what is in force stays
    await definitions.times_read(1)
    await wait_until_idle(reloads)
    reloads._schedule(frozenset())  # as any change in the folder does
    await wait_until_idle(reloads)
    file.unlink()
    await definitions.times_read(1)
    assert definitions.times == 2
    reloads.close()


async def test_files_that_wait_for_the_budget_start_a_run_once_the_cap_is_raised(home):
    async with Vendor(["I looked."]) as vendor:
        provider = (
            f'provider = "local"\n[providers.local]\nkind = "open_source"\n'
            f'base_url = "{vendor.url}/v1"\nmodel = "m"\n'
        )
        home.write("config.toml", f"{provider}[budget]\nday_tokens = 1\n")
        home.routine(
            "inbox", '[trigger]\nwatch = ["*.csv"]\nsettle = "0.1s"\n[run]\nprompt = "Look."\n'
        )
        await home.start()
        (home.workspace / "a.csv").write_text("1,2\n")
        await home.wait_for_log("files.waiting", reason="budget")
        home.write("config.toml", provider)
        (finished,) = await home.wait_for_log("run.finished", routine="inbox")
        assert finished["status"] == "succeeded"


class FullDisk(OutboxRepository):
    """What a reload writes to the outbox does not fit on the disk."""

    async def retry_now(self, targets: Collection[str]) -> int:
        raise StoreFull("the disk is full")


async def reload_at_the_second_attempt(app: TestApp) -> None:
    """Reload on a full disk, halfway, and once there is room."""
    journal = app.daemon.store.journal
    outbox = journal.outbox
    journal.outbox = FullDisk(journal._db, clock=app.clock.now)
    with pytest.raises(StoreFull):
        await app.daemon.reloader.reload()
    journal.outbox = outbox
    await app.daemon.reloader.reload()


HOOK = '[targets.hook]\nkind = "webhook"\nurl = "{}"\n'


async def test_a_target_is_tried_again_though_the_reload_of_its_address_failed_halfway(
    tmp_path: Path,
) -> None:
    app = TestApp(tmp_path, config=CONFIG + HOOK.format("http://127.0.0.1:1/hook"))
    app.write_routine("hello", '[run]\nprompt = "Say hello."\n[[deliver]]\nto = "hook"\n')
    async with app, Receiver().open() as receiver:
        app.model.enqueue("Hello.")
        await app.run("hello")
        (delivery,) = await app.deliver()
        assert delivery.status == "pending"
        app.write("config.toml", CONFIG + HOOK.format(receiver.url))
        await reload_at_the_second_attempt(app)
        (delivery,) = await app.deliver()
        assert (delivery.status, delivery.attempts) == ("delivered", 2)


async def test_files_that_wait_for_the_budget_start_a_run_though_its_reload_failed_halfway(
    tmp_path: Path,
) -> None:
    async def wait_for_log(event: str) -> None:
        async with asyncio.timeout(60):
            while not app.log(event):
                await asyncio.sleep(0.01)

    hook = HOOK.format("http://127.0.0.1:1/hook")
    # the timer that waits for midnight goes by the real time
    clock = FakeClock(datetime.now(UTC))
    config = f"{CONFIG}{hook}[budget]\nday_tokens = 1\n"
    app = TestApp(tmp_path, config=config, clock=clock)
    app.write_routine(
        "inbox", '[trigger]\nwatch = ["*.csv"]\nsettle = "0.1s"\n[run]\nprompt = "Look."\n'
    )
    async with app:
        app.model.enqueue("I looked.")
        app.workspace.mkdir(parents=True, exist_ok=True)
        (app.workspace / "a.csv").write_text("1,2\n")
        engine = app.daemon.scheduling.engine
        await engine.start(await app.daemon.reloader.load_routines())
        await wait_for_log("files.waiting")
        app.write("config.toml", CONFIG + HOOK.format("http://127.0.0.1:1/other"))
        await reload_at_the_second_attempt(app)
        await wait_for_log("run.finished")
        await engine.stop()
