"""Hostile messages: valid ones with fields changed, their bytes damaged, and bytes that never were a message."""

from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]

_INT32 = st.sampled_from([-(2**31), -2, -1, 0, 1, 2, 3, 7, 8, 64, 65, 255, 2**31 - 1])
_UINT32 = st.sampled_from([0, 1, 2, 3, 7, 8, 64, 65, 95, 96, 97, 255, 256, 257, 512, 2**31, 2**32 - 1])
_UINT64 = st.sampled_from([0, 1, 2**32, 2**63, 2**64 - 1])
_FLOATS = [0.0, -0.0, 1e-45, 0.5, 1.0, -1.0, 2.0, 2.5, 101.0, 3e38, float("nan"), float("inf"), -1e30]
_FLOAT = st.sampled_from(_FLOATS)
_TEXT = st.one_of(
    st.sampled_from(["", "a", "s", "user", "tool", "\0", "\U0001f600\u0301", "x" * 300, "x" * 5000]),
    st.text(max_size=8),
)
_VALUES: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_SINT32: _INT32,
    FieldDescriptor.TYPE_UINT32: _UINT32,
    FieldDescriptor.TYPE_UINT64: _UINT64,
    FieldDescriptor.TYPE_FLOAT: _FLOAT,
    FieldDescriptor.TYPE_DOUBLE: _FLOAT,
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_ENUM: st.sampled_from([0, 1, 2, 3, 4, 99]),
    FieldDescriptor.TYPE_STRING: _TEXT,
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=300),
}


def payloads(seeds: Sequence[Message]) -> st.SearchStrategy[bytes]:
    """What may arrive where one of `seeds` should."""
    return st.one_of(_changed(seeds), _changed(seeds), _damaged(seeds), st.binary(max_size=64))


@st.composite
def _changed(draw: Draw, seeds: Sequence[Message]) -> bytes:
    """A message of the right type with one to four fields that are not what they should be."""
    message = draw(st.sampled_from(seeds))
    changed = type(message)()
    changed.CopyFrom(message)
    for _ in range(draw(st.integers(1, 4))):
        _change(draw, changed)
    return changed.SerializeToString()


@st.composite
def _damaged(draw: Draw, seeds: Sequence[Message]) -> bytes:
    """The bytes of a message, cut, doubled, or with other bytes in them."""
    raw = draw(st.sampled_from(seeds)).SerializeToString()
    at = draw(st.integers(0, len(raw)))
    end = draw(st.integers(at, min(len(raw), at + 8)))
    return raw[:at] + draw(st.one_of(st.binary(max_size=8), st.just(raw[at:] + raw[:at]))) + raw[end:]


def _change(draw: Draw, message: Message) -> None:
    if not message.DESCRIPTOR.fields:
        return
    field = draw(st.sampled_from(list(message.DESCRIPTOR.fields)))
    if draw(st.integers(0, 7)) == 0:
        message.ClearField(field.name)
    elif field.message_type is not None and field.message_type.GetOptions().map_entry:
        getattr(message, field.name)[draw(_UINT32)] = draw(_FLOAT)
    elif field.is_repeated:
        _change_list(draw, field, getattr(message, field.name))
    elif field.message_type is not None:
        part = getattr(message, field.name)
        part.SetInParent()
        _change(draw, part)
    else:
        setattr(message, field.name, draw(_VALUES[field.type]))


def _change_list(draw: Draw, field: FieldDescriptor, items: Any) -> None:
    at = draw(st.integers(0, len(items))) if items else 0
    if field.message_type is not None:
        _change(draw, items.add() if at == len(items) else items[at])
    elif at < len(items) and draw(st.booleans()):
        items[at] = draw(_VALUES[field.type])
    else:
        items.extend([draw(_VALUES[field.type])] * draw(st.sampled_from([1, 1, 2, 100, 300])))
