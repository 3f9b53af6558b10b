"""What must hold, held against what was measured. Pure."""

import operator
from collections.abc import Mapping
from typing import Any

from benchmarks.spec.statistics import Estimate

_SIGNS = {">=": operator.ge, "<=": operator.le, "==": operator.eq}
Bars = dict[str, dict[str, Any]]


def bar(value: Estimate | float | None, sign: str, need: float) -> dict[str, Any]:
    """A bar as it is written to JSON; `holds` is None for one whose value was not measured."""
    if value is None:
        return {"value": None, "need": f"{sign} {need:g}", "holds": None}
    point = value.value if isinstance(value, Estimate) else value
    interval = {"low": value.low, "high": value.high} if isinstance(value, Estimate) else {}
    return {"value": point, **interval, "need": f"{sign} {need:g}", "holds": bool(_SIGNS[sign](point, need))}


def show(bars: Mapping[str, Mapping[str, Any]]) -> None:
    """Prints one line a bar."""
    words = {True: "holds", False: "FAILS", None: "not measured"}
    for name, entry in bars.items():
        value = "-" if entry["value"] is None else f"{entry['value']:.3f}"
        interval = f"[{entry['low']:.3f}, {entry['high']:.3f}]" if "low" in entry else ""
        print(f"{name:44}{value:>10} {interval:18} need {entry['need']:10} {words[entry['holds']]}")


def exit_code(bars: Mapping[str, Mapping[str, Any]]) -> int:
    """1 if a bar fails."""
    return int(any(entry["holds"] is False for entry in bars.values()))
