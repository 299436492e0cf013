"""A network between the daemon and a receiver: one TCP hop that can be cut, frozen and mended."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager


class Wire:
    """Passes bytes on to a port, in the mode it is in: `open`; `frozen` (taken, and nothing moves);
    `deaf` (what goes there arrives, what comes back is lost); `reset` (every connection ends at
    once).
    """

    def __init__(self, port: int) -> None:
        self.there, self.mode = port, "open"
        self.calls = 0
        """Connections that were made."""
        self._open: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self):
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    async def _carry(self, reader, writer):
        task = asyncio.current_task()
        self._open.add(task)
        self.calls += 1
        mode, ends = self.mode, [writer]
        try:
            if mode == "reset":
                writer.transport.abort()
                return
            if mode == "frozen":
                await reader.read()
                return
            server_reader, back = await asyncio.open_connection("127.0.0.1", self.there)
            ends.append(back)
            ways = [
                self._pump(reader, back, is_lost=False),
                self._pump(server_reader, writer, is_lost=mode == "deaf"),
            ]
            await asyncio.gather(*ways)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
            for end in ends:
                end.close()

    async def _pump(self, reader, writer, *, is_lost):
        # whoever has gone already is not connected, which is no ConnectionError
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if not is_lost:
                    writer.write(data)
                    await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
