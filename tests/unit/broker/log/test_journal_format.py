"""The bytes of a journal file: what is read is what was written, whatever happened to the end of the file."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from oncelog.broker.log.journal_format import (
    HEADER_SIZE,
    FileContent,
    Void,
    decode_file,
    decode_header,
    encode_batch,
    encode_header,
)

ID = b"\x01\x02\x03\x04\x05\x06\x07\x08"
BOOT = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
INT64 = st.integers(0, (1 << 63) - 1)
NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,40}-[0-9]{1,3}", fullmatch=True)
ENTRIES = st.tuples(NAMES, INT64, INT64, INT64, st.binary(max_size=300))
BATCHES = st.tuples(st.lists(ENTRIES, max_size=4), st.lists(st.builds(Void, NAMES, INT64), max_size=3))

Given = list[tuple[list[tuple[str, int, int, int, bytes]], list[Void]]]

TWO: Given = [
    ([("a-0", 0, 10, 3, b"first"), ("b-0", 7, 0, 9, b"second")], []),
    ([("a-0", 0, 15, 4, b"third")], [Void("c-1", 5)]),
]


def encoded(batches: Given, first: int = 1) -> bytes:
    return encode_header(3, ID, BOOT) + b"".join(
        encode_batch(ID, first + number, entries, voids) for number, (entries, voids) in enumerate(batches)
    )


def content_of(file: FileContent) -> Given:
    """What was given to `encoded`; b"" in place of damaged bytes."""
    return [
        (
            [(e.name, e.base_offset, e.position, e.end_offset, bytes(e.content or b"")) for e in batch.entries],
            list(batch.voids),
        )
        for batch in file.batches
    ]


@given(batches=st.lists(BATCHES, max_size=4), first=st.integers(0, 1 << 60), rest=st.integers(0, 5000))
def test_what_is_read_is_what_was_written(batches: Given, first: int, rest: int) -> None:
    file = decode_file(encoded(batches, first) + bytes(rest))
    assert content_of(file) == batches
    assert file.damage is None
    assert file.boot_id == BOOT
    assert [batch.sequence for batch in file.batches] == list(range(first, first + len(batches)))


def test_the_header_names_the_file() -> None:
    assert decode_header(encode_header(42, ID, BOOT)) == (42, ID, BOOT)
    assert len(encode_header(42, ID, "")) == HEADER_SIZE
    assert decode_header(bytes(HEADER_SIZE)) is None


def test_a_file_that_ends_early_has_the_batches_before_its_end() -> None:
    data = encoded(TWO)
    first_ends = len(encoded(TWO[:1]))
    for size in range(len(data)):
        for ended in (data[:size], data[:size].ljust(len(data) + 100, b"\0")):
            file = decode_file(ended)
            assert content_of(file) == TWO[: int(size >= first_ends)], size
            assert file.damage is None
            assert file.boot_id in (BOOT, "")


def test_a_flipped_byte_in_the_last_batch_is_a_torn_write() -> None:
    data = encoded(TWO)
    for position in range(len(encoded(TWO[:1])), len(data)):
        file = decode_file(flipped(data, position))
        assert content_of(file) == TWO[:1], position
        assert file.damage is None


def test_a_flipped_byte_before_the_last_batch_is_damage_that_names_what_it_can() -> None:
    data = encoded(TWO)
    first_ends = len(encoded(TWO[:1]))
    bytes_start = first_ends - len(b"firstsecond")
    for position in range(HEADER_SIZE, first_ends):
        file = decode_file(flipped(data, position))
        assert content_of(file)[-1] == TWO[1]
        if position < bytes_start:
            assert (len(file.batches), file.damage) == (1, HEADER_SIZE), position
        else:
            which = int(position >= bytes_start + len(b"first"))
            assert file.damage is None
            assert [entry.content is None for entry in file.batches[0].entries] == [which == 0, which == 1], position


def test_a_damaged_header_hides_the_boot_alone() -> None:
    data = encoded(TWO)
    for position in range(HEADER_SIZE):
        file = decode_file(flipped(data, position))
        assert content_of(file) == TWO
        assert (file.boot_id, file.damage) == ("", None), position


def test_a_batch_of_another_file_is_none_of_this_one() -> None:
    other = encode_batch(b"another!", 2, [("x-0", 0, 0, 1, b"not of this file")])
    inside = encode_batch(ID, 2, [("a-0", 0, 5, 2, other)])
    assert content_of(decode_file(encoded(TWO[:1]) + other)) == TWO[:1]
    torn = decode_file(encoded(TWO[:1]) + inside[: len(inside) - 1])
    assert (content_of(torn), torn.damage) == (TWO[:1], None), "what a client wrote is taken for no batch"


def flipped(data: bytes, position: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 0x40
    return bytes(changed)
