"""Definitions are read again once they have been left alone, and a bad file changes nothing."""

import asyncio

from daemon.app.definition_watcher import DefinitionWatcher, watch_zone
from daemon.errors import ConfigError, Fault
from daemon.system.watch import DirectoryWatcher
from tests.replaying import ReplayedApp


class Definitions:
    def __init__(self, *faults):
        self.read = asyncio.Semaphore(0)
        self.times = 0
        self.faults = list(faults)

    async def __call__(self):
        self.times += 1
        self.read.release()
        if self.faults:
            raise self.faults.pop()

    async def times_read(self, count):
        async with asyncio.timeout(60):
            for _ in range(count):
                await self.read.acquire()


async def started(definitions, *folders):
    reloads = DefinitionWatcher(definitions, lambda: folders, DirectoryWatcher())
    reloads.start(await reloads.note_files())
    return reloads


async def done(reloads):
    async with asyncio.timeout(60):
        while reloads._task and not reloads._task.done():
            await asyncio.sleep(0)


async def test_a_burst_of_changes_is_read_once(tmp_path):
    definitions = Definitions()
    reloads = await started(definitions, tmp_path)
    for n in range(20):
        (tmp_path / f"{n}.toml").write_text("x")
    await definitions.times_read(1)
    assert definitions.times == 1
    reloads.close()


async def test_ringing_during_a_reload_reads_once_more(tmp_path):
    entered, go = asyncio.Event(), asyncio.Event()
    times = []

    async def slow():
        times.append(1)
        entered.set()
        await go.wait()

    reloads = await started(slow, tmp_path)
    reloads.reload_now()
    await entered.wait()
    reloads.reload_now()
    reloads.reload_now()
    go.set()
    await done(reloads)
    assert len(times) == 2
    reloads.close()


async def test_a_bad_file_leaves_the_next_reload_possible(tmp_path):
    definitions = Definitions(
        ConfigError(Fault(file="a", key="b", found="c", problem="d")), RuntimeError("broken")
    )
    reloads = await started(definitions, tmp_path)
    for _ in range(3):
        reloads.reload_now()
        await definitions.times_read(1)
        await done(reloads)
    assert definitions.times == 3
    reloads.close()


async def test_a_folder_that_appears_later_is_watched(tmp_path):
    definitions = Definitions()
    reloads = await started(definitions, tmp_path, tmp_path / "routines")
    (tmp_path / "routines").mkdir()
    await definitions.times_read(1)
    await done(reloads)
    (tmp_path / "routines" / "a.toml").write_text("x")
    await definitions.times_read(1)
    reloads.close()


async def test_what_changed_while_the_definitions_were_read_is_read_again(tmp_path):
    definitions = Definitions()
    reloads = DefinitionWatcher(definitions, lambda: [tmp_path], DirectoryWatcher())
    folders = await reloads.note_files()
    (tmp_path / "a.toml").write_text("x")
    reloads.start(folders)
    await definitions.times_read(1)
    reloads.close()


async def test_nothing_is_read_again_while_the_files_are_the_same(tmp_path):
    definitions = Definitions()
    (tmp_path / "a.toml").write_text("x")
    (tmp_path / "state").mkdir()
    reloads = await started(definitions, tmp_path)
    (tmp_path / "state" / "a").touch()
    (tmp_path / "agentd.db-wal").write_text("x")
    (tmp_path / "stderr").write_text("a line that the reload would write again")
    async with asyncio.timeout(60):
        while reloads._task is None:  # called when the watching began
            await asyncio.sleep(0.01)
    await done(reloads)
    assert definitions.times == 0
    reloads.close()


async def test_a_routine_that_is_a_link_is_read_again_when_its_file_changes(tmp_path):
    definitions, elsewhere = Definitions(), tmp_path / "dotfiles"
    elsewhere.mkdir()
    (elsewhere / "a.toml").write_text("x")
    (tmp_path / "routines").mkdir()
    (tmp_path / "routines/a.toml").symlink_to("../dotfiles/a.toml")
    reloads = await started(definitions, tmp_path / "routines")
    (elsewhere / "a.toml").write_text("yy")
    await definitions.times_read(1)
    reloads.close()


async def test_two_reloads_at_the_same_time_take_a_change_up_once(tmp_path):
    app = ReplayedApp(tmp_path)
    app.write("config.toml", "")
    async with app, app.daemon.tasks:
        daemon = app.daemon
        await daemon.scheduling.engine.start(await daemon.reloader.load_routines())
        app.write_routine("bye", '[trigger]\nevery = "1h"\n[run]\nprompt = "x"\n')
        views = await asyncio.gather(daemon.reloader.reload(), daemon.reloader.reload())
        await daemon.scheduling.engine.stop()
    assert [view["added"] for view in views] == [["bye"], []]


async def test_a_change_of_the_hosts_zone_is_noticed_and_nothing_else_of_etc(tmp_path):
    etc, rung = tmp_path / "etc", asyncio.Semaphore(0)
    etc.mkdir()
    zones = tmp_path / "usr/share/zoneinfo"
    (etc / "localtime").symlink_to(zones / "Europe/Berlin")
    watching = asyncio.create_task(
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
    watching.cancel()
