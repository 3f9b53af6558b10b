"""Requests, some given up, while shards, draft and relay come and go: every text is right, and nothing is left."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardflow.config import Peer
from tests.fake_shards import Fault
from tests.fakes import FakeDraft, Target
from tests.fuzz.deployment import deployed, resident_mib, settled, tasks, write_models
from tests.fuzz.relay import Relay
from tests.orchestrating import ask, system, until, write_model
from tests.scripts import continuation, letters

PROMPTS = ["hello", "a", "to be or not to be", "x" * 70]
LENGTHS = (1, 7, 24)
LONG = 180


@dataclass
class Storm:
    """`count` requests within `seconds`, at most `at_once` of them at a time; every other one is given up early."""

    stub: Any
    right: Callable[[str, int], str]
    seed: int
    count: int
    seconds: float
    at_once: int = 64
    finished: int = 0
    cancelled: int = 0

    async def run(self, disturb: Callable[[random.Random], Awaitable[None]], pause_s: float) -> None:
        """Ends when all requests have; `disturb` is called every `pause_s` or so meanwhile."""
        room = asyncio.Semaphore(self.at_once)
        requests = asyncio.gather(*(self._one(room, number) for number in range(self.count)))
        chance = random.Random(self.seed)
        while not requests.done():
            await asyncio.wait([requests], timeout=pause_s * chance.uniform(0.5, 1.5))
            await disturb(chance)
        await requests

    async def _one(self, room: asyncio.Semaphore, number: int) -> None:
        chance = random.Random(self.seed * 1000 + number)
        await asyncio.sleep(chance.uniform(0, self.seconds))
        prompt, length, k = chance.choice(PROMPTS), chance.choice(LENGTHS), chance.choice([0, 2, 8])
        async with room:
            gives_up = number % 2 == 1
            length = LONG if gives_up else length
            call = self.stub.Generate(ask(prompt, k=k, max_tokens=length), timeout=30)
            patience = asyncio.timeout(chance.uniform(0, 0.2) if gives_up else None)
            try:
                async with patience:
                    text = "".join([message.text async for message in call])
            except TimeoutError:
                call.cancel()
                self.cancelled += 1
            else:
                assert text == self.right(prompt, length)
                self.finished += 1


async def test_over_fakes(tmp_path: Path) -> None:
    relay, draft = Relay(), FakeDraft(lambda text: letters(text) if len(text) % 3 else 33)
    await relay.start()
    target = Relayed(relay)
    await target.start()
    await draft.server.start()

    async def disturb(chance: random.Random) -> None:
        match chance.randrange(5):
            case 0:
                await target.restart(chance.randrange(2))
            case 1:
                await draft.server.stop()
                draft.sessions.clear()
                await asyncio.sleep(0.1)
                await draft.server.start()
            case 2:
                relay.cut()
            case 3:
                chance.choice(target.shards).drop_streams()
            case 4:
                fault = chance.choice([Fault.LOSE, Fault.REFUSE, Fault.FORGET, Fault.DUPLICATE, Fault.DELAY])
                target.last.faults[len(target.last.slices) + chance.randrange(4)] = fault

    async with system(write_model(tmp_path / "bytes"), target, draft, patience_s=20.0) as running:
        await running.generate("hello", k=2, max_tokens=9)
        tasks_before, resident = await tasks(), resident_mib()
        storm = Storm(running.stub, lambda prompt, n: continuation(letters, prompt, n), seed=1, count=200, seconds=4.0)
        await storm.run(disturb, pause_s=0.25)
        await until(lambda: not any(shard.sessions for shard in target.shards))
        await until(lambda: not draft.sessions)
        await until(lambda: running.sample("shardflow_active_requests") == 0)
        core = running.service
        assert not core._shards._pending
        assert not core._shards._queries
        assert not core._draft._pending
        await settled(tasks_before)
        assert resident_mib() - resident < 192
        assert storm.finished >= 100
        assert storm.cancelled >= 20
        assert relay.joined > 4
    assert target.violations == []
    assert draft.violations == []
    await draft.server.stop()
    await target.stop()
    await relay.stop()


class Relayed(Target):
    """A target whose shards are reached through a relay."""

    def __init__(self, relay: Relay) -> None:
        super().__init__()
        self._relay = relay

    @property
    def peers(self) -> tuple[Peer, ...]:
        return tuple(Peer(peer.address, self._relay.address) for peer in super().peers)


async def test_over_the_tiny_model(tmp_path: Path) -> None:
    relay = Relay()
    await relay.start()
    async with deployed(write_models(tmp_path), relay.address) as deployment:
        right = {
            (prompt, n): (await deployment.generate(prompt, k=0, max_tokens=n)).text
            for prompt in PROMPTS
            for n in (*LENGTHS, LONG)
        }
        tasks_before = await deployment.tasks()

        async def disturb(chance: random.Random) -> None:
            host = chance.choice([*deployment.shards, deployment.draft, None])
            if host is None:
                relay.cut()
            else:
                await host.stop()
                await host.start()

        resident = []
        for seed in (2, 3):  # the first fills pools and arenas that stay
            storm = Storm(deployment.stub, lambda *what: right[what], seed=seed, count=100, seconds=3.0, at_once=12)
            await storm.run(disturb, pause_s=1.0)
            await until(lambda: not any(deployment.held().values()), 15)
            await settled(tasks_before)
            resident.append(resident_mib())
            assert storm.finished >= 50
            assert storm.cancelled >= 10
        assert resident[1] - resident[0] < 64
    await relay.stop()
