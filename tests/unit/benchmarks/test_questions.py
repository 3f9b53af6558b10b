"""The benchmark's questions: ten a kind, in a form that others' files share."""

import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.spec.questions import DEFAULT, KINDS, Question, raw, read
from shardflow.errors import InvalidArgument


def test_ten_questions_of_each_kind() -> None:
    questions = read(DEFAULT, KINDS, None)
    assert Counter(question.kind for question in questions) == dict.fromkeys(KINDS, 10)
    assert len({question.name for question in questions}) == 60
    assert {len(question.turns) for question in questions if question.kind == "conversation"} == {2}


def test_questions_are_cut_by_kind() -> None:
    chosen = read(DEFAULT, ("translation", "math reasoning"), 2)
    assert [question.name for question in chosen] == [
        "translation-11", "translation-12", "math_reasoning-41", "math_reasoning-42",
    ]  # fmt: skip


def test_other_files_may_name_the_kinds_of_conversation(tmp_path: Path) -> None:
    file = tmp_path / "bench.jsonl"
    entries = [{"question_id": 81, "category": "writing", "turns": ["x", "y"]}]
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    assert read(file, KINDS, None) == [Question("writing-81", "conversation", ("x", "y"), chat=True)]


@pytest.mark.parametrize("line", ["hello", '{"category": "qa", "turns": ["x"]}', '{"question_id": 1, "category": "?"}'])
def test_a_line_that_is_no_question_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "bench.jsonl").write_text(line + "\n")
    with pytest.raises(InvalidArgument, match=r"bench\.jsonl:1"):
        read(tmp_path / "bench.jsonl", KINDS, None)


def test_a_turn_sees_the_turns_and_answers_before_it() -> None:
    question = Question("q", "conversation", ("one", "two"), chat=True)
    assert question.prompt(0, []) == [{"role": "user", "content": "one"}]
    assert question.prompt(1, ["eins"]) == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "eins"},
        {"role": "user", "content": "two"},
    ]


def test_a_raw_prompt_is_sent_as_it_is() -> None:
    assert raw()[0].prompt(0, []) == "The capital of France is"
