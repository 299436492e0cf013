"""The coalescing queue handles each name, never twice at once, and retries failures."""

import asyncio

from daemon.system.coalescing_queue import BATCH_SIZE, CoalescingQueue


class Desk:
    """Does what it is asked to, one bunch of names at a time."""

    def __init__(self, faults=0):
        self.batches, self.faults = [], faults
        self.busy = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.news = asyncio.Condition()

    async def work(self, names):
        assert not self.busy.is_set(), "never twice at once"
        self.busy.set()
        await self.go_on.wait()
        self.busy.clear()
        if self.faults:
            self.faults -= 1
            raise OSError("disk full")
        async with self.news:
            self.batches.append(list(names))
            self.news.notify_all()

    async def until(self, *bunches):
        async with asyncio.timeout(60), self.news:
            await self.news.wait_for(lambda: self.batches == list(bunches))


async def test_names_added_together_are_handled_together():
    desk = Desk()
    queue = CoalescingQueue("test", desk.work, retry=60)
    for name in ("a", "b", "a"):
        queue.add(name)
    await desk.until(["a", "b"])
    await queue.stop()


async def test_a_name_added_while_handled_is_handled_again():
    desk = Desk()
    desk.go_on.clear()
    queue = CoalescingQueue("test", desk.work, retry=60)
    queue.add("a")
    await desk.busy.wait()
    queue.add("a")
    queue.add("b")
    desk.go_on.set()
    await desk.until(["a"], ["a", "b"])
    await queue.stop()


async def test_thousands_of_names_are_handled_in_batches():
    desk = Desk()
    queue = CoalescingQueue("test", desk.work, retry=60)
    names = [str(number) for number in range(2 * BATCH_SIZE + 1)]
    for name in names:
        queue.add(name)
    await desk.until(
        names[:BATCH_SIZE], names[BATCH_SIZE : 2 * BATCH_SIZE], names[2 * BATCH_SIZE :]
    )
    await queue.stop()


async def test_failed_names_are_retried_before_later_names():
    desk = Desk(faults=1)
    queue = CoalescingQueue("test", desk.work, retry=0.01)
    desk.go_on.clear()
    queue.add("a")
    await desk.busy.wait()
    queue.add("b")
    desk.go_on.set()
    await desk.until(["a", "b"])
    await queue.stop()


async def test_stopping_the_queue_finishes_the_current_names_only():
    desk = Desk()
    desk.go_on.clear()
    queue = CoalescingQueue("test", desk.work, retry=0)
    queue.add("a")
    await desk.busy.wait()
    queue.add("b")
    stopping = asyncio.create_task(queue.stop())
    await asyncio.sleep(0)
    desk.go_on.set()
    await stopping
    queue.add("c")
    assert desk.batches == [["a"]]
