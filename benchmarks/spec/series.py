"""Takes the answers of one deployment: every question in every arm, interleaved, those that are recorded left out."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.spec.asking import ask
from benchmarks.spec.questions import Question
from benchmarks.spec.records import Key, Records
from shardflow.client import ShardflowClient
from shardflow.cluster import running
from shardflow.topology import Topology

WARM_UP_REPETITION = -1


@dataclass(frozen=True)
class Series:
    """What is asked of one deployment. The arms of a question stand side by side, the first one changing every time."""

    draft: str
    rtt_ms: float
    arms: tuple[str, ...]
    temperatures: tuple[float, ...]
    questions: Sequence[Question]
    repetitions: int
    max_tokens: int

    def runs(self) -> Iterator[tuple[Key, Question]]:
        """Every answer in order: all questions once at all temperatures, then once more."""
        turn = 0
        for repetition in range(self.repetitions):
            for temperature in self.temperatures:
                for question in self.questions:
                    for place in range(len(self.arms)):
                        arm = self.arms[(turn + place) % len(self.arms)]
                        key = Key(self.draft, self.rtt_ms, temperature, arm, question.name, repetition)
                        yield key, question
                    turn += 1


async def take(series: Series, topology: Topology, records: Records, deadline: float) -> bool:
    """Starts the deployment, warms each arm up, and records what is missing; whether all of it is there now.

    No answer is begun after `deadline`, in seconds on the monotonic clock.
    """
    missing = [(key, question) for key, question in series.runs() if key not in records]
    if not missing:
        return True
    if time.monotonic() >= deadline:
        return False
    with tempfile.TemporaryDirectory() as folder:
        async with running(topology, Path(folder)) as cluster, ShardflowClient(cluster.address) as client:
            for arm in series.arms:
                key = Key(series.draft, series.rtt_ms, 0.0, arm, series.questions[0].name, WARM_UP_REPETITION)
                await ask(client, series.questions[0], key, series.max_tokens)
            for done, (key, question) in enumerate(missing):
                if time.monotonic() >= deadline:
                    return False
                record = await ask(client, question, key, series.max_tokens)
                records.add(record)
                rate = record.tokens / record.seconds if record.seconds else 0.0
                print(
                    f"{done + 1}/{len(missing)} {series.draft} {series.rtt_ms:g} ms T={key.temperature:g} "
                    f"{question.name} {key.arm}: {rate:.1f} tok/s",
                    flush=True,
                )
    return True
