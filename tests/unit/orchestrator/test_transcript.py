"""Tokens are committed one by one: the text ends at the first one that ends it."""

import pytest

from services.orchestrator.transcript import Finish, Transcript

EOS = 0


class Bytes:
    """Decodes ids that are bytes; an incomplete character is held back."""

    def __init__(self) -> None:
        self._held = b""

    def push(self, token_id: int) -> str:
        self._held += bytes([token_id]) if token_id else b""
        try:
            text = self._held.decode()
        except UnicodeDecodeError:
            return ""
        self._held = b""
        return text

    def flush(self) -> str:
        return self._held.decode(errors="replace")


def transcript(
    max_tokens: int = 99, stops: tuple[str, ...] = (), eos_ids: frozenset[int] = frozenset([EOS])
) -> Transcript:
    return Transcript([7, 8], max_tokens=max_tokens, eos_ids=eos_ids, stops=stops, decoder=Bytes())


def run(subject: Transcript, ids: bytes) -> list[str]:
    """Commits ids until the text ends; the text that each released."""
    texts = []
    for token_id in ids:
        texts.append(subject.commit(token_id))
        if subject.finish is not None:
            break
    return texts


def test_tokens_grow_behind_the_prompt() -> None:
    subject = transcript()
    assert run(subject, b"ab") == ["a", "b"]
    assert (subject.tokens, subject.prompt_tokens, subject.output_tokens, subject.remaining) == (
        [7, 8, 97, 98],
        2,
        2,
        97,
    )
    assert subject.finish is None


def test_end_of_sequence() -> None:
    subject = transcript()
    assert run(subject, b"ab\0c") == ["a", "b", ""]
    assert (subject.finish, subject.output_tokens, subject.remaining) == (Finish.STOP, 3, 0)


def test_end_of_sequence_as_the_last_token_allowed_is_a_stop() -> None:
    subject = transcript(max_tokens=3)
    run(subject, b"ab\0")
    assert subject.finish is Finish.STOP


def test_end_of_sequence_in_the_prompt_ends_nothing() -> None:
    subject = Transcript([EOS], max_tokens=9, eos_ids=frozenset([EOS]), stops=(), decoder=Bytes())
    assert run(subject, b"a") == ["a"]
    assert subject.finish is None


def test_ignored_end_of_sequence() -> None:
    assert run(transcript(eos_ids=frozenset()), b"a\0b") == ["a", "", "b"]


@pytest.mark.parametrize("max_tokens", [1, 2, 3])
def test_max_tokens(max_tokens: int) -> None:
    subject = transcript(max_tokens)
    assert "".join(run(subject, b"abcd")) == "abcd"[:max_tokens]
    assert (subject.finish, subject.output_tokens) == (Finish.LENGTH, max_tokens)


def test_a_stop_text_over_two_tokens() -> None:
    subject = transcript(stops=("bc",))
    assert run(subject, b"abcd") == ["a", "", ""]
    assert (subject.finish, subject.output_tokens) == (Finish.STOP, 3)


def test_a_stop_text_with_the_last_token_allowed_is_a_stop() -> None:
    subject = transcript(3, stops=("bc",))
    run(subject, b"abc")
    assert subject.finish is Finish.STOP


def test_half_a_stop_text_at_the_end_is_released() -> None:
    subject = transcript(2, stops=("bc",))
    assert run(subject, b"ab") == ["a", "b"]
    assert subject.finish is Finish.LENGTH


def test_half_a_stop_text_before_the_end_of_sequence_is_released() -> None:
    assert run(transcript(stops=("bc",)), b"ab\0") == ["a", "", "b"]


def test_a_character_of_several_tokens() -> None:
    assert run(transcript(), "é€".encode()) == ["", "é", "", "", "€"]


def test_half_a_character_at_the_end() -> None:
    assert run(transcript(3), "a€".encode()) == ["a", "", "\ufffd"]


def test_a_stop_text_that_is_half_a_character() -> None:
    subject = transcript(2, stops=("\ufffd",))
    assert run(subject, "a€".encode()) == ["a", ""]
    assert subject.finish is Finish.STOP
