"""Draws the figures of a run. Every plot of emulated compute says so in its title."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "shardflow", "svg.fonttype": "none", "font.size": 9})

from matplotlib import pyplot  # noqa: E402  the backend must be chosen before

Cells = Sequence[Mapping[str, Any]]
Points = Sequence[tuple[float, Mapping[str, float]]]
_ORDER = ("none", "linear", "tree", "lookup", "auto")


def by_kind(cells: Cells, figure: str, label: str, file: Path) -> None:
    """Bars of one figure for each kind of task and arm, with confidence intervals."""
    arms = in_order(arm for cell in cells for arm in cell["arms"])
    width = 0.8 / max(1, len(arms))
    axes = _axes(label, "", (9, 3.6))
    for place, arm in enumerate(arms):
        found = [(spot, cell["arms"][arm][figure]) for spot, cell in enumerate(cells) if arm in cell["arms"]]
        centres = [spot + (place - (len(arms) - 1) / 2) * width for spot, _ in found]
        values = [entry["value"] for _, entry in found]
        spans = [[e["value"] - e["low"] for _, e in found], [e["high"] - e["value"] for _, e in found]]
        axes.bar(centres, values, width, yerr=spans, label=arm, color=_colour(place), error_kw={"elinewidth": 0.6})
    axes.set_xticks(range(len(cells)), [cell["kind"].replace(" ", "\n") for cell in cells])
    _save(axes, file)


def lines(
    drawn: Mapping[str, Sequence[tuple[float, Mapping[str, float]]]], across: str, title: str, file: Path
) -> None:
    """Tokens a second over some number, one line with its confidence band for each name in `drawn`."""
    axes = _axes("tokens a second", across, (6, 3.6))
    axes.set_title(title)
    for place, (label, points) in enumerate(drawn.items()):
        at = [number for number, _ in points]
        axes.plot(at, [each["value"] for _, each in points], marker="o", label=label, color=_colour(place))
        band = [each["low"] for _, each in points], [each["high"] for _, each in points]
        axes.fill_between(at, *band, color=_colour(place), alpha=0.15)
    _save(axes, file)


def in_order(arms: Iterable[str]) -> list[str]:
    """Arms in the order in which they are told."""
    return sorted(set(arms), key=lambda arm: (_ORDER.index(arm.partition(":")[0]), int(arm.partition(":")[2] or 0)))


def _colour(place: int) -> str:
    return f"C{place}"


def _axes(up: str, across: str, inches: tuple[float, float]) -> Any:
    _, axes = pyplot.subplots(figsize=inches, layout="constrained")
    axes.set_ylabel(up)
    axes.set_xlabel(across)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _save(axes: Any, file: Path) -> None:
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
    axes.figure.savefig(file, metadata={"Date": None})
    pyplot.close(axes.figure)
