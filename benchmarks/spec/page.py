"""Writes what was measured into `docs/speculation.md`, between its markers, and draws the plots of `bench-spec`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.spec import plots
from benchmarks.spec.figures import ALL
from benchmarks.spec.questions import KINDS, RAW_KIND
from shardflow.topology import ROOT

PAGE = ROOT / "docs" / "speculation.md"
_HOME = {"draft": "head", "rtt_ms": 86.0}

Result = Mapping[str, Any]
Cells = Sequence[Mapping[str, Any]]


def write(result: Result, results: Path) -> None:
    """Draws the plots into the folder `results`, and writes the tables with links to them."""
    drawn = draw(result["figures"], results)
    publish("bench-spec", tables(result) + pictures(drawn))


def publish(target: str, block: str) -> None:
    """Puts what a make target has measured into its place on the page."""
    PAGE.write_text(insert(PAGE.read_text(encoding="utf-8"), target, block), encoding="utf-8")


def insert(text: str, target: str, block: str) -> str:
    """`text` with `block` between the markers of a make target, in place of what was there; ValueError without them."""
    begin, end = (f"<!-- written by `make {target}`: {which} -->" for which in ("begin", "end"))
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise ValueError(f"no markers of {target}")
    return f"{before}{begin}\n{block}{end}{after}"


def draw(cells: Cells, results: Path) -> dict[str, Path]:
    """Title and file of each plot."""
    kinds = chosen(cells, temperature=0.0, **_HOME)
    far = chosen(cells, temperature=0.0, draft="head", kind=ALL)
    drawn = {
        "Tokens a second by kind of task, greedy, 86 ms": results / "spec-kinds.svg",
        "Tokens a round by kind of task, greedy, 86 ms": results / "spec-rounds.svg",
        "Tokens a second by distance, greedy": results / "spec-distance.svg",
    }
    by_kind, by_round, by_distance = drawn.values()
    plots.by_kind(kinds, "tok_s", "tokens a second", by_kind)
    plots.by_kind(kinds, "tokens_per_round", "tokens a round", by_round)
    plots.lines(over_distance(far), "round trip, ms", "SmolLM2-135M over two shards, greedy", by_distance)
    return drawn


def over_distance(cells: Cells) -> dict[str, list[tuple[float, Mapping[str, float]]]]:
    """Tokens a second of each arm over the round trip."""
    ordered = sorted(cells, key=lambda cell: cell["rtt_ms"])
    arms = plots.in_order(arm for cell in cells for arm in cell["arms"])
    return {
        arm: [(cell["rtt_ms"], cell["arms"][arm]["tok_s"]) for cell in ordered if arm in cell["arms"]] for arm in arms
    }


def tables(result: Result) -> str:
    """The bars, and tokens a second by kind of task at each temperature and by distance."""
    cells = result["figures"]
    parts = [measured(result["receipt"]), bar_table(result["bars"])]
    for temperature in sorted({cell["temperature"] for cell in cells}):
        parts.append(f"Tokens a second (and a round) at 86 ms, temperature {temperature:g}:\n")
        parts.append(_arms(chosen(cells, temperature=temperature, **_HOME), "kind"))
    parts.append("Tokens a second (and a round) by round trip, greedy, all kinds of task:\n")
    far = sorted(chosen(cells, temperature=0.0, draft="head", kind=ALL), key=lambda cell: float(cell["rtt_ms"]))
    parts.append(_arms(far, "rtt_ms"))
    return "\n".join(parts)


def measured(made: Mapping[str, Any]) -> str:
    """When, where and how, in a sentence; `made` is the receipt."""
    machine, conditions = made["machine"], made["conditions"]
    return (
        f"Measured {made['date'][:10]} at commit `{(made['commit'] or 'none')[:12]}` on {machine['cores']} cores "
        f"({machine['model']}), {conditions['scheduling']} priority, at most {conditions['max_tokens']} tokens an "
        "answer. Brackets: 95 % of a bootstrap over questions.\n"
    )


def pictures(drawn: Mapping[str, Path]) -> str:
    """Links to the plots, from the page's folder."""
    return "".join(f"\n![{title}](../{file.relative_to(ROOT)})\n" for title, file in drawn.items())


def chosen(cells: Cells, **wanted: Any) -> Cells:
    """The cells with these properties, kinds of task in their order, all together last."""
    order = [*KINDS, RAW_KIND, ALL]
    found = [cell for cell in cells if all(cell[name] == value for name, value in wanted.items())]
    return sorted(found, key=lambda cell: order.index(cell["kind"]))


def bar_table(bars: Mapping[str, Mapping[str, Any]]) -> str:
    """What must hold, and whether it does."""
    words = {True: "yes", False: "**no**", None: "not measured"}
    rows = [(name.replace("_", " "), _value(each), each["need"], words[each["holds"]]) for name, each in bars.items()]
    return _table(("what", "measured", "needed", "holds"), rows)


def _arms(cells: Cells, first: str) -> str:
    arms = plots.in_order(arm for cell in cells for arm in cell["arms"])
    rows = []
    for cell in cells:
        entries = [cell["arms"].get(arm) for arm in arms]
        rates = [f"{e['tok_s']['value']:.2f} ({e['tokens_per_round']['value']:.2f})" if e else "-" for e in entries]
        rows.append((f"{cell[first]:g}" if isinstance(cell[first], float) else cell[first], *rates))
    return _table(({"rtt_ms": "ms", "kind": "task"}[first], *arms), rows)


def _value(bar: Mapping[str, Any]) -> str:
    if bar["value"] is None:
        return "-"
    return f"{bar['value']:.2f}" + (f" [{bar['low']:.2f}, {bar['high']:.2f}]" if "low" in bar else "")


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
