"""The demonstration from start to end: cluster, one live answer, warm-up, measured runs, table, JSON."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from shardflow import paint
from shardflow.client import ShardflowClient, Token
from shardflow.cluster import Cluster, running
from shardflow.demo import report
from shardflow.demo.prompts import CHAT
from shardflow.demo.receipt import receipt
from shardflow.demo.run import SEED, Sample, Schedule, measure, speculation
from shardflow.topology import Topology

LIVE_QUESTION = next(question for question in CHAT if question.name == "answer-moon")
_LIVE_TOKENS = 48
_WARM_UP_TOKENS = 8


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
            figures = await cluster.guard(self._measure(cluster))
        self.console.print(report.speed_table(figures), report.time_table(figures))
        self._verdict(figures)
        if self.json_file is not None:
            self.json_file.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n")
            self._say(f"figures written to {self.json_file}")
        return figures

    async def _measure(self, cluster: Cluster) -> dict[str, Any]:
        async with ShardflowClient(cluster.address) as client:
            await self._live_answer(client)
            for k in self.schedule.ks:
                await measure(client, LIVE_QUESTION, k, 0, _WARM_UP_TOKENS)
            before = await cluster.relay_bytes()
            samples = await self._samples(client)
            after = await cluster.relay_bytes()
            status = await client.status()
        carried = {direction: after[direction] - before[direction] for direction in after}
        rtt_ms = max((shard.rtt_ms for shard in status.shards if shard.relay), default=status.shards[-1].rtt_ms)
        figures = report.summarise(samples, rtt_ms, carried)
        return {**figures, "receipt": receipt(**self._conditions()), "samples": [_brief(each) for each in samples]}

    async def _live_answer(self, client: ShardflowClient) -> None:
        k = min((k for k in self.schedule.ks if k), default=0)
        self.console.print()
        self.console.print(Text(f"» {LIVE_QUESTION.text}", style="bold"))
        tokens: list[Token] = []

        def show(token: Token) -> None:
            tokens.append(token)
            self.console.print(paint.token_text(token), end="", soft_wrap=True)

        sample = await measure(client, LIVE_QUESTION, k, 0, _LIVE_TOKENS, show)
        self.console.print("\n")
        if self.console.is_terminal:
            self.console.print(paint.legend())
        else:
            self._say(f"token by token: {paint.marks(tokens)}  ({paint.marks_legend()})")
        self._say(f"first token after {sample.first_token_s * 1000:.0f} ms, {speculation(k)}")

    async def _samples(self, client: ShardflowClient) -> list[Sample]:
        runs = self.schedule.runs()
        samples = []
        with self._progress() as progress:
            task = progress.add_task("measuring", total=len(runs), last="")
            for question, k, repetition in runs:
                sample = await measure(client, question, k, repetition, self.schedule.tokens(question))
                samples.append(sample)
                rate = report.tok_s(sample)
                last = f"{question.name} {speculation(k)}" + (f" {rate:.1f} tok/s" if rate is not None else "")
                progress.update(task, advance=1, last=last)
                if not self.console.is_terminal:
                    self._say(f"{len(samples)}/{len(runs)} {last}")
        return samples

    def _progress(self) -> Progress:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        trailing = (TimeRemainingColumn(), TextColumn("{task.fields[last]}"))
        return Progress(*columns, *trailing, console=self.console, disable=not self.console.is_terminal)

    def _announce(self) -> None:
        ranges = ", ".join(f"{first}:{end}" for first, end in self.topology.layer_ranges())
        delay = self.topology.delay_ms
        link = "directly connected" if delay is None else f"{delay:g} ms apart each way, behind the relay"
        schedule = self.schedule
        self._say(f"{self.topology.model.name}, layers {ranges}, {link}; logs: {self.run_dir}")
        self._say(
            f"K = {', '.join(map(str, schedule.ks))}: {len(schedule.raw)} raw prompts of {schedule.raw_tokens} tokens "
            f"x {schedule.raw_repetitions}, {len(schedule.chat)} chat questions of up to {schedule.chat_tokens} tokens "
            f"x {schedule.chat_repetitions}; {len(schedule.runs())} answers in all"
        )

    def _verdict(self, figures: dict[str, Any]) -> None:
        self._say(f"round trip {figures['rtt_ms']:.1f} ms; through the relay: {figures['relay_bytes']:,} bytes")
        if figures["speedup"] is not None:
            self._say(f"speed-up {figures['speedup']:.2f} with {figures['spec_arm']}, the fastest mode of this run")
        if figures["identical"]:
            self.console.print(Text("texts identical in all modes and repetitions", style="bold green"))
        else:
            self.console.print(Text(f"texts differ: {', '.join(figures['differing'])}", style="bold red"))

    def _conditions(self) -> dict[str, Any]:
        schedule = self.schedule
        return {
            "layers": self.topology.layer_ranges(),
            "one_way_delay_ms": self.topology.delay_ms,
            "dtype": self.topology.dtype,
            "threads": self.topology.threads,
            "model": self.topology.model.name,
            "draft": None if self.topology.draft is None else self.topology.draft.name,
            "temperature": 0.0,
            "seeds": [SEED],
            "warm_up": f"one answer of {_WARM_UP_TOKENS} tokens per mode, not counted",
            "schedule": asdict(schedule),
        }

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)


def _brief(sample: Sample) -> dict[str, Any]:
    return {
        "question": sample.question,
        "mode": speculation(sample.k),
        "repetition": sample.repetition,
        "tokens": len(sample.token_ids),
        "tok_s": report.tok_s(sample),
        "first_token_ms": sample.first_token_s * 1000,
        "drafted": sample.drafted,
        "accepted": sample.accepted,
        "text": sample.text,
    }
