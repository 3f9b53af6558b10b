"""What single ids stand for, for the two ways in which vocabularies write bytes."""

import pytest
from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as RustTokenizer

from shardflow.tokenizer import Tokenizer
from tests.orchestrating import write_model


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(write_model(tmp_path_factory.mktemp("models") / "bytes"))


@pytest.fixture(scope="module")
def sentence_pieces(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    vocab = {"▁the": 0, "<0xE2>": 1, "é": 2}
    tokenizer = RustTokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_tokens([AddedToken("<tab>", special=False)])
    path = tmp_path_factory.mktemp("pieces")
    tokenizer.save(str(path / "tokenizer.json"))
    return Tokenizer(path)


@pytest.mark.parametrize(
    ("token_id", "raw", "text"),
    [(97, b"a", "a"), (32, b" ", " "), (0xF0, b"\xf0", "\\xf0"), (256, None, "<eos>"), (999, None, "")],
)
def test_byte_level(byte_level: Tokenizer, token_id: int, raw: bytes | None, text: str) -> None:
    assert (byte_level.token_bytes(token_id), byte_level.token_text(token_id)) == (raw, text)


@pytest.mark.parametrize(
    ("token_id", "raw", "text"),
    [(0, b" the", " the"), (1, b"\xe2", "\\xe2"), (2, b"\xc3\xa9", "é"), (3, b"<tab>", "<tab>")],
)
def test_sentence_pieces(sentence_pieces: Tokenizer, token_id: int, raw: bytes | None, text: str) -> None:
    assert (sentence_pieces.token_bytes(token_id), sentence_pieces.token_text(token_id)) == (raw, text)
