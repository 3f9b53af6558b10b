"""The demonstration from start to end: cluster, one live answer, warm-up, measured runs, table, JSON."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from shardflow import paint
from shardflow.client import ShardflowClient, Token
from shardflow.cluster import Cluster, running
from shardflow.demo import series
from shardflow.demo.prompts import LIVE_QUESTION
from shardflow.demo.run import Schedule, measure
from shardflow.topology import Topology

_LIVE_TOKENS = 48


@dataclass(frozen=True)
class Show:
    """What to show, on what, and where to."""

    topology: Topology
    schedule: Schedule
    console: Console
    run_dir: Path
    json_file: Path | None

    async def play(self) -> dict[str, Any]:
        """Runs everything and returns the figures; ends all processes, also when it fails."""
        self._announce()
        async with running(self.topology, self.run_dir, self._say) as cluster:
            self._say(f"playground, for as long as this runs: {cluster.playground}")
            figures = await cluster.guard(self._measure(cluster))
        series.present(figures, self.console, self.json_file)
        return figures

    async def _measure(self, cluster: Cluster) -> dict[str, Any]:
        async with ShardflowClient(cluster.address) as client:
            await self._live_answer(client)
            await series.warm_up(client, self.schedule)
            before = await cluster.relay_bytes()
            samples = await series.take(client, self.schedule, self.console)
            after = await cluster.relay_bytes()
            status = await client.status()
        carried = {direction: after[direction] - before[direction] for direction in after}
        return series.evaluate(samples, status, self.schedule, carried, **self._conditions())

    async def _live_answer(self, client: ShardflowClient) -> None:
        mode = self.schedule.modes[-1]
        self.console.print()
        self.console.print(Text(f"» {LIVE_QUESTION.text}", style="bold"))
        tokens: list[Token] = []

        def show(token: Token) -> None:
            tokens.append(token)
            self.console.print(paint.token_text(token), end="", soft_wrap=True)

        sample = await measure(client, LIVE_QUESTION, mode, 0, _LIVE_TOKENS, show)
        self.console.print("\n")
        if self.console.is_terminal:
            self.console.print(paint.legend())
        else:
            self._say(f"token by token: {paint.marks(tokens)}  ({paint.marks_legend()})")
        self._say(f"first token after {sample.first_token_s * 1000:.0f} ms, {mode}")

    def _announce(self) -> None:
        ranges = ", ".join(f"{first}:{end}" for first, end in self.topology.layer_ranges())
        delay = self.topology.delay_ms
        link = "directly connected" if delay is None else f"{delay:g} ms apart each way, behind the relay"
        schedule = self.schedule
        self._say(f"{self.topology.model.name}, layers {ranges}, {link}; logs: {self.run_dir}")
        self._say(
            f"{', '.join(schedule.modes)}: {len(schedule.raw)} raw prompts of {schedule.raw_tokens} tokens "
            f"x {schedule.raw_repetitions}, {len(schedule.chat)} chat questions of up to {schedule.chat_tokens} tokens "
            f"x {schedule.chat_repetitions}; {len(schedule.runs())} answers in all"
        )

    def _conditions(self) -> dict[str, Any]:
        return {
            "layers": self.topology.layer_ranges(),
            "one_way_delay_ms": self.topology.delay_ms,
            "dtype": self.topology.dtype,
            "threads": self.topology.threads,
            "model": self.topology.model.name,
            "draft": None if self.topology.draft is None else self.topology.draft.name,
        }

    def _say(self, line: str) -> None:
        paint.say(self.console, line)
