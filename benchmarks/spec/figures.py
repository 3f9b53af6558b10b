"""The figures of a run: one cell for each draft, distance, temperature and kind of task, with every arm in it. Pure."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict
from typing import Any

from benchmarks.spec import statistics
from benchmarks.spec.questions import KINDS
from benchmarks.spec.records import Record
from benchmarks.spec.statistics import Estimate, Figure, Totals

ALL = "all"  # the kinds of task together, the raw prompts aside

Cell = tuple[str, float, float, str]  # draft, round trip, temperature, kind


class Figures:
    """Records, and what they come to."""

    def __init__(self, records: Collection[Record]) -> None:
        self.records = records

    def arms(self, cell: Cell) -> dict[str, Totals]:
        """The arms of a cell, each with the questions that all of its arms have."""
        chosen: dict[str, list[Record]] = {}
        for record in self._in(cell):
            chosen.setdefault(record.key.arm, []).append(record)
        return statistics.common({arm: statistics.totals(each) for arm, each in sorted(chosen.items())})

    def ratio(self, figure: Figure, above: tuple[Cell, str], below: tuple[Cell, str]) -> Estimate | None:
        """A figure of one cell's arm over that of another; None where they have no question in common."""
        found = [self.arms(cell).get(arm) for cell, arm in (above, below)]
        if any(each is None for each in found):
            return None
        both = statistics.common({str(place): each for place, each in enumerate(found) if each is not None})
        return statistics.ratio(figure, both["0"], both["1"]) if both["0"].questions else None

    def estimate(self, figure: Figure, cell: Cell, arm: str) -> Estimate | None:
        """A figure of one arm of a cell; None where it has no question."""
        found = self.arms(cell).get(arm)
        return statistics.estimate(figure, found) if found is not None and found.questions else None

    def best(self, figure: Figure, cell: Cell, wanted: Callable[[str], bool]) -> str | None:
        """The arm among those `wanted` whose figure is the greatest; None if there is none."""
        arms = {arm: totals for arm, totals in self.arms(cell).items() if wanted(arm) and totals.questions}
        values = {arm: statistics.estimate(figure, totals).value for arm, totals in arms.items()}
        return max(values, key=lambda arm: values[arm], default=None)

    def hidden_share(self, cell: Cell, arm: str) -> float | None:
        """Share of the draft's work in a cell's arm for which nobody waited."""
        return statistics.hidden_share(record for record in self._in(cell) if record.key.arm == arm)

    def cells(self) -> list[Cell]:
        """Every cell that has a record, and those of all kinds together."""
        single = {_cell(record, record.kind) for record in self.records}
        together = {_cell(record, ALL) for record in self.records if record.kind in KINDS}
        return sorted(single | together)

    def table(self) -> list[dict[str, Any]]:
        """All cells as they are written to JSON."""
        return [self._entry(cell) for cell in self.cells()]

    def _entry(self, cell: Cell) -> dict[str, Any]:
        draft, rtt_ms, temperature, kind = cell
        arms = {arm: self._arm(cell, arm, totals) for arm, totals in self.arms(cell).items() if totals.questions}
        return {"draft": draft, "rtt_ms": rtt_ms, "temperature": temperature, "kind": kind, "arms": arms}

    def _arm(self, cell: Cell, arm: str, totals: Totals) -> dict[str, Any]:
        records = [record for record in self._in(cell) if record.key.arm == arm]
        drafted = sum(record.drafted for record in records)
        return {
            "tok_s": asdict(statistics.estimate(statistics.mean_rate, totals)),
            "tok_s_token_weighted": asdict(statistics.estimate(statistics.weighted_rate, totals)),
            "tokens_per_round": asdict(statistics.estimate(statistics.tokens_per_round, totals)),
            "acceptance": sum(record.accepted for record in records) / drafted if drafted else None,
            "drafting_hidden": statistics.hidden_share(records),
            "questions": len(totals.questions),
            "answers": len(records),
        }

    def _in(self, cell: Cell) -> Iterable[Record]:
        kinds = KINDS if cell[3] == ALL else (cell[3],)
        return (record for record in self.records if record.kind in kinds and _cell(record, cell[3]) == cell)


def _cell(record: Record, kind: str) -> Cell:
    return record.key.draft, record.key.rtt_ms, record.key.temperature, kind
