"""The log of verified rounds: what is written comes back, it stays small, and a crash costs one record."""

from pathlib import Path

import pytest

from shardflow.errors import InvalidArgument
from shardflow.roundlog import Round, RoundLog, Text, read_texts

FIRST = Round([700, 3], [[700, 9], [3, 49151]], [[8, 1], [5]])
SECOND = Round([2], [[2, 4]])


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    log = RoundLog(tmp_path / "rounds", 1 << 20)
    log.begin("a", [1, 300])
    log.begin("b", [])
    log.round("a", FIRST)
    log.round("b", SECOND)
    log.round("a", SECOND)
    log.close()
    a, b = read_texts(tmp_path / "rounds")
    assert a == Text([1, 300], [FIRST, Round([2], [[2, 4]], [])])
    assert a.answer == [700, 3, 2]
    assert (b.prompt, b.answer) == ([], [2])


def test_a_round_takes_little_room(tmp_path: Path) -> None:
    log = RoundLog(tmp_path / "rounds", 1 << 20)
    log.begin("a", [1])
    before = (tmp_path / "rounds").stat().st_size
    log.round("a", Round([500] * 4, [[500] * 8] * 4, [[500] * 4]))
    log.close()
    assert (tmp_path / "rounds").stat().st_size - before == 90


def test_the_whole_stays_bounded_and_the_newest_is_kept(tmp_path: Path) -> None:
    log = RoundLog(tmp_path / "rounds", 2000)
    for number in range(200):
        log.begin(str(number), [number] * 20)
        log.end(str(number))
    log.close()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 2000 + 50
    numbers = [text.prompt[0] for text in read_texts(tmp_path / "rounds")]
    assert numbers == list(range(numbers[0], 200))
    assert len(numbers) > 20


def test_rounds_of_a_text_that_began_in_another_file_are_left_out(tmp_path: Path) -> None:
    log = RoundLog(tmp_path / "rounds", 100)
    log.begin("long", [7] * 60)  # crosses the half
    log.round("long", SECOND)
    log.close()
    assert list(read_texts(tmp_path / "rounds")) == [Text([7] * 60, [])]


def test_a_record_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    log = RoundLog(tmp_path / "rounds", 1 << 20)
    log.begin("a", [1])
    log.round("a", SECOND)
    log.round("a", FIRST)
    log.close()
    held = (tmp_path / "rounds").read_bytes()
    for cut in range(1, 20):
        (tmp_path / "rounds").write_bytes(held[:-cut])
        assert next(read_texts(tmp_path / "rounds")).answer == [2]


def test_a_restart_keeps_what_was_there(tmp_path: Path) -> None:
    for session in ("a", "b"):
        log = RoundLog(tmp_path / "rounds", 1 << 20)
        log.begin(session, [ord(session)])
        log.close()
    assert [text.prompt for text in read_texts(tmp_path / "rounds")] == [[97], [98]]


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rounds").write_text("hello")
    with pytest.raises(InvalidArgument, match="no log of rounds"):
        list(read_texts(tmp_path / "rounds"))


def test_best_ids_stand_with_their_tokens(tmp_path: Path) -> None:
    log = RoundLog(tmp_path / "rounds", 1 << 20)
    log.begin("a", [1])
    with pytest.raises(ValueError, match="1 rows of best ids for 2 tokens"):
        log.round("a", Round([1, 2], [[1]]))
    log.close()
