"""A relay in this process: joins who asks by CONNECT with the address asked for, and can cut all its connections."""

import asyncio
from contextlib import suppress


class Relay:
    """Listens on a port of its own."""

    def __init__(self) -> None:
        self.address = ""
        self.joined = 0
        self._server: asyncio.Server
        self._ends: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname())

    async def stop(self) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._serving)

    def cut(self) -> None:
        """Ends every connection; new ones are taken at once."""
        for end in self._ends:
            end.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            request = await reader.readuntil(b"\r\n\r\n")
            host, _, port = request.split()[1].decode().rpartition(":")
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            self.joined += 1
            ends = {writer, far_writer}
            self._ends |= ends
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
            self._ends -= ends
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
