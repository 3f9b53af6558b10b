"""What must hold, judged on made-up records, and the page that tells it."""

import json
from pathlib import Path

import pytest

from benchmarks import bench_reference, bench_spec
from benchmarks.spec import page
from benchmarks.spec.bars import bar, exit_code
from benchmarks.spec.figures import ALL, Figures
from benchmarks.spec.questions import KINDS
from benchmarks.spec.records import Record
from benchmarks.spec.statistics import Estimate
from tests.unit.benchmarks.records import record

RATES = {"none": 8.0, "linear:2": 11.0, "linear:8": 10.0, "auto": 13.2}


def answers(rates: dict[str, float] = RATES, **fields: object) -> list[Record]:
    """One question of each kind in every arm; `auto` brings more tokens a round than the others."""
    return [
        record(arm, f"{kind}-1", kind=kind, rate=rate, rounds=10 if arm == "auto" else 20, **fields)  # type: ignore[arg-type]
        for kind in KINDS
        for arm, rate in rates.items()
    ]


def judged(records: list[Record]) -> dict[str, tuple[float | None, bool | None]]:
    bars = bench_spec.judge(Figures(records))
    return {name: (each["value"] and round(each["value"], 3), each["holds"]) for name, each in bars.items()}


def test_bars_of_a_run_with_every_part() -> None:
    records = [
        *answers(draft_ms=10.0, hidden_ms=40.0),
        *answers({"auto": 12.0}, temperature=0.8),
        *answers({"none": 8.0, "auto": 7.6}, draft="random"),
        *[record("auto", "raw-list", kind="raw", draft="target", rate=25.0)],
    ]
    assert judged(records) == {
        "auto_over_best_linear": (1.2, True),
        "auto_over_none_on_the_worst_kind": (1.65, True),
        "auto_over_none_with_a_random_draft": (0.95, False),
        "tokens_per_round_auto_over_linear8": (2.0, True),
        "sampled_over_greedy": (0.909, True),
        "tok_s_target_as_own_draft": (25.0, True),
        "drafting_hidden": (0.8, True),
        "texts_that_differ": (0, True),
    }


def test_the_worst_kind_counts() -> None:
    slow = [record("none", "raw-list", kind="raw"), record("auto", "raw-list", kind="raw", rate=9.0)]
    assert judged([*answers(), *slow])["auto_over_none_on_the_worst_kind"] == (0.9, False)


def test_what_was_not_measured_neither_holds_nor_fails() -> None:
    found = judged(answers({"none": 8.0}))
    assert found["auto_over_best_linear"] == (None, None)
    assert exit_code(bench_spec.judge(Figures(answers({"none": 8.0})))) == 0


def test_a_differing_text_fails() -> None:
    records = [record("none", "a", answer="x"), record("auto", "a", answer="y")]
    assert judged(records)["texts_that_differ"] == (1, False)
    assert exit_code(bench_spec.judge(Figures(records))) == 1


def test_bars_of_the_reference_regime() -> None:
    def text(arm: str, draft: str, rate: float) -> Record:
        return record(arm, "text-0", kind="emulated", draft=draft, rate=rate)

    records = [
        text("linear:8", "emulated 0.78, 6 ms", 18.0),
        text("linear:8", "emulated 0.78, 3.3 ms", 20.0),
        text("linear:4", "emulated 0.78, 3.3 ms", 19.0),
        text("auto", "emulated 0.78, 3.3 ms", 28.0),
        text("auto", "emulated 0.78, varying, 3.3 ms", 30.8),
    ]
    bars = bench_reference.judge(Figures(records))
    found = {name: (round(each["value"], 3), each["holds"]) for name, each in bars.items() if each["value"] is not None}
    assert found == {
        "auto_tok_s_at_0.78": (28.0, True),
        "auto_over_best_linear_at_0.78": (1.4, True),
        "varying_confidence_adds_at_0.78": (1.1, True),
        "linear8_off_the_original": (0.04, True),
        "texts_that_differ": (0, True),
    }


def test_a_bar_is_written_with_its_interval() -> None:
    assert bar(Estimate(1.2, 1.1, 1.3), ">=", 1.15) == {
        "value": 1.2, "low": 1.1, "high": 1.3, "need": ">= 1.15", "holds": True,
    }  # fmt: skip


def test_cells_are_of_each_kind_and_of_all_together() -> None:
    cells = Figures([record("none", "a"), record("none", "b", kind="raw")]).table()
    assert [(cell["kind"], cell["arms"]["none"]["questions"]) for cell in cells] == [
        (ALL, 1),
        ("raw", 1),
        ("translation", 1),
    ]
    assert cells[0]["arms"]["none"]["acceptance"] == pytest.approx(1 / 3)


def test_the_page_keeps_what_is_not_measured() -> None:
    text = "a\n<!-- written by `make x`: begin -->\nold\n<!-- written by `make x`: end -->\nz\n"
    new = "a\n<!-- written by `make x`: begin -->\nnew\n<!-- written by `make x`: end -->\nz\n"
    assert page.insert(text, "x", "new\n") == new
    with pytest.raises(ValueError, match="no markers of y"):
        page.insert(text, "y", "new\n")


@pytest.mark.parametrize("target", ["bench-spec", "bench-reference"])
def test_the_page_has_its_markers(target: str) -> None:
    assert "new figures" in page.insert(page.PAGE.read_text(), target, "new figures\n")


def test_plots_and_tables_are_made_of_figures(tmp_path: Path) -> None:
    cells = json.loads(json.dumps(Figures(answers()).table()))
    drawn = page.draw(cells, tmp_path)
    assert all(file.read_text().startswith("<?xml") for file in drawn.values())
    receipt = {
        "date": "2026-11-30T10:00:00", "commit": "0123456789abcdef", "machine": {"cores": 2, "model": "some"},
        "conditions": {"scheduling": "real-time", "max_tokens": 64},
    }  # fmt: skip
    text = page.tables({"figures": cells, "bars": bench_spec.judge(Figures(answers())), "receipt": receipt})
    assert "| translation | 8.00 (2.00) | 11.00 (2.00) | 10.00 (2.00) | 13.20 (4.00) |" in text
    assert "| auto over best linear | 1.20 [1.20, 1.20] | >= 1.15 | yes |" in text
