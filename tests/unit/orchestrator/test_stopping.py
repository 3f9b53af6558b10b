"""Stop texts end the answer before themselves, however they are cut into pieces."""

from hypothesis import given
from hypothesis import strategies as st

from services.orchestrator.stopping import StopScanner


def released(stops: list[str], pieces: list[str]) -> list[str]:
    """What each piece releases, and the end of it."""
    scanner = StopScanner(stops)
    return [*(scanner.push(piece) for piece in pieces), scanner.flush()]


def test_no_stop_texts() -> None:
    assert released([], ["a", "b"]) == ["a", "b", ""]


def test_a_stop_inside_a_piece() -> None:
    assert released(["b"], ["abc", "d"]) == ["a", "", ""]


def test_a_stop_over_three_pieces() -> None:
    assert released(["END"], ["oneE", "N", "D two"]) == ["one", "", "", ""]


def test_a_start_of_a_stop_that_does_not_come_true() -> None:
    assert released(["END"], ["oneE", "N", "X"]) == ["one", "", "ENX", ""]


def test_a_start_of_a_stop_at_the_end() -> None:
    assert released(["END"], ["oneEN"]) == ["one", "EN"]


def test_a_stop_that_begins_inside_its_own_start() -> None:
    assert released(["aab"], ["a", "a", "a", "b"]) == ["", "", "a", "", ""]


def test_the_first_of_two_stops_counts() -> None:
    assert released(["four", " th"], ["two three four"]) == ["two", ""]


def test_of_two_stops_at_one_place_the_shorter_ends_it_too() -> None:
    assert released(["abc", "ab"], ["xab", "c"]) == ["x", "", ""]


def test_a_longer_stop_that_began_earlier_and_does_not_come_true() -> None:
    assert released(["abcd", "bc"], ["a", "b", "c", "x"]) == ["", "", "a", "", ""]


def test_stopped() -> None:
    scanner = StopScanner(["b"])
    scanner.push("a")
    assert not scanner.stopped
    scanner.push("b")
    assert scanner.stopped


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=3), max_size=3), st.data())
def test_pieces_do_not_matter_when_tokens_are_characters(text: str, stops: list[str], data: st.DataObject) -> None:
    """Character by character, the answer is the text before the stop that is complete first."""
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    end = min(ends, default=len(text))
    starts = [text[:end].find(stop) for stop in stops if stop in text[:end]]
    assert "".join(released(stops, list(text))) == text[: min(starts, default=len(text))]
