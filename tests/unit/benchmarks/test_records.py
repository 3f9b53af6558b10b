"""Raw records: what is written is read again, and a run goes on where it was interrupted."""

from pathlib import Path

import pytest

from benchmarks.spec import code
from benchmarks.spec.questions import Question
from benchmarks.spec.records import Records
from benchmarks.spec.series import Series
from shardflow.errors import InvalidArgument
from tests.unit.benchmarks.records import record

CONDITIONS = {"commit": "abc", "max_tokens": 64}


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "results" / "spec.jsonl"
    first = Records(file, CONDITIONS)
    first.add(record("auto", "a", rate=12.5, hidden_ms=3.25))
    again = Records(file, CONDITIONS)
    assert again.all == first.all == [record("auto", "a", rate=12.5, hidden_ms=3.25)]
    assert record("auto", "a").key in again
    assert record("auto", "b").key not in again


def test_a_line_that_was_cut_off_is_taken_again(tmp_path: Path) -> None:
    file = tmp_path / "spec.jsonl"
    records = Records(file, CONDITIONS)
    records.add(record("auto", "a"))
    records.add(record("auto", "b"))
    file.write_text(file.read_text()[:-10])
    again = Records(file, CONDITIONS)
    assert [each.key.question for each in again.all] == ["a"]
    again.add(record("auto", "b"))
    assert [each.key.question for each in Records(file, CONDITIONS).all] == ["a", "b"]


def test_records_of_another_commit_are_not_mixed_in(tmp_path: Path) -> None:
    Records(tmp_path / "spec.jsonl", CONDITIONS)
    with pytest.raises(InvalidArgument, match="other conditions"):
        Records(tmp_path / "spec.jsonl", {**CONDITIONS, "commit": "def"})


def test_the_arms_of_a_question_stand_side_by_side_and_take_turns() -> None:
    questions = [Question(name, "translation", (name,), chat=True) for name in ("a", "b")]
    series = Series("head", 86.0, ("none", "auto"), (0.0,), questions, repetitions=2, max_tokens=8)
    assert [(key.question, key.arm, key.repetition) for key, _ in series.runs()] == [
        ("a", "none", 0), ("a", "auto", 0), ("b", "auto", 0), ("b", "none", 0),
        ("a", "none", 1), ("a", "auto", 1), ("b", "auto", 1), ("b", "none", 1),
    ]  # fmt: skip


def test_the_code_is_the_same_until_something_that_runs_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"ls-files": b"blob 1\n", "diff": b""}
    monkeypatch.setattr(code, "_git", lambda command, *paths: said[command])
    first = code.digest()
    assert code.digest() == first
    said["diff"] = b"+a line"
    edited = code.digest()
    said |= {"ls-files": b"blob 2\n", "diff": b""}
    assert len({first, edited, code.digest()}) == 3
