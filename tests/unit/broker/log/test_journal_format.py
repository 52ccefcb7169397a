"""The bytes of a journal file: what is read is what was written, whatever happened to the end of the file."""

from __future__ import annotations

from itertools import pairwise

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from oncelog.broker.log.journal_format import (
    HEADER_SIZE,
    Entry,
    FileContent,
    Header,
    Void,
    decode_file,
    decode_header,
    encode_batch,
    encode_header,
)

ID = b"\x01\x02\x03\x04\x05\x06\x07\x08"
BOOT = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
HEADER = Header(3, ID, BOOT)
INT64 = st.integers(0, (1 << 63) - 1)
NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,40}-[0-9]{1,3}", fullmatch=True)
MARK = 0x12345678


def entry(name: str, base_offset: int, position: int, end_offset: int, content: bytes) -> Entry:
    return Entry(name, base_offset, position, len(content), end_offset, MARK, crc32c(content), content)


ENTRIES = st.builds(entry, NAMES, INT64, INT64, INT64, st.binary(max_size=300))
BATCHES = st.tuples(st.lists(ENTRIES, max_size=4), st.lists(st.builds(Void, NAMES, INT64), max_size=3))

Given = list[tuple[list[Entry], list[Void]]]

TWO: Given = [
    ([entry("a-0", 0, 10, 3, b"first"), entry("b-0", 7, 0, 9, b"second")], []),
    ([entry("a-0", 0, 15, 4, b"third")], [Void("c-1", 5)]),
]


def encoded(batches: Given, first: int = 1) -> bytes:
    return encode_header(HEADER) + b"".join(
        encode_batch(ID, first + number, entries, voids) for number, (entries, voids) in enumerate(batches)
    )


def content_of(file: FileContent) -> Given:
    """What was given to `encoded`, with None in place of damaged bytes."""
    return [
        ([e._replace(content=e.content and bytes(e.content)) for e in b.entries], list(b.voids)) for b in file.batches
    ]


@given(batches=st.lists(BATCHES, max_size=4), first=st.integers(0, 1 << 60), rest=st.integers(0, 5000))
def test_what_is_read_is_what_was_written(batches: Given, first: int, rest: int) -> None:
    file = decode_file(encoded(batches, first) + bytes(rest))
    assert content_of(file) == batches
    assert file.damage is None
    assert file.header == HEADER
    assert [batch.sequence for batch in file.batches] == list(range(first, first + len(batches)))


def test_the_header_names_the_file() -> None:
    assert decode_header(encode_header(HEADER)) == HEADER
    assert len(encode_header(HEADER._replace(boot_id=""))) == HEADER_SIZE
    assert decode_header(bytes(HEADER_SIZE)) is None


def whole(file: FileContent) -> list[bool]:
    return [batch.is_whole for batch in file.batches]


def test_a_file_that_ends_early_has_the_batches_before_its_end() -> None:
    data = encoded(TWO)
    first_ends = len(encoded(TWO[:1]))
    for size in range(len(data)):
        for ended in (data[:size], data[:size].ljust(len(data) + 100, b"\0")):
            file = decode_file(ended)
            read = [given for given, is_whole in zip(content_of(file), whole(file), strict=True) if is_whole]
            assert read == TWO[: int(size >= first_ends)], size
            assert len(file.batches) <= 2
            if size >= HEADER_SIZE:
                assert (file.header, file.damage) == (HEADER, None)


def test_a_flipped_byte_in_the_last_batch_looks_like_a_torn_write() -> None:
    data = encoded(TWO)
    for position in range(len(encoded(TWO[:1])), len(data)):
        file = decode_file(flipped(data, position))
        assert content_of(file)[:1] == TWO[:1], position
        assert whole(file) in ([True], [True, False])
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
        assert (file.header, file.damage) == (None, None), position


def test_bytes_that_the_disk_cannot_read_are_no_torn_write() -> None:
    data = encoded(TWO) + bytes(100)
    ends = [HEADER_SIZE, len(encoded(TWO[:1])), len(encoded(TWO))]
    for start in range(HEADER_SIZE, len(data) - 20):
        unreadable = range(start, start + 20)
        file = decode_file(data[:start] + bytes(20) + data[start + 20 :], [unreadable])
        hurt = [any(at in unreadable for at in range(*span)) for span in pairwise(ends)]
        if start + 20 > ends[2] or not any(hurt):
            assert file.damage is not None, "other batches may have followed"
        for number in (number for number, is_hurt in enumerate(hurt) if is_hurt):
            batches = [batch for batch in file.batches if batch.sequence == number + 1]
            assert file.damage is not None or [batch.is_whole for batch in batches] == [False]
        assert not file.may_be_torn


def test_behind_a_damaged_header_and_a_damaged_batch_nothing_is_believed() -> None:
    forged = encode_batch(b"forged!!", 2, [entry("a-0", 0, 5, 2, b"of a client")])
    data = encoded([([entry("a-0", 0, 0, 1, forged)], [])])
    file = decode_file(flipped(flipped(data, 40), HEADER_SIZE + 10))
    assert (file.header, file.batches, file.damage) == (None, (), HEADER_SIZE)
    assert decode_file(bytes(HEADER_SIZE + 100)) == FileContent(None, (), None), "the file was never used"


def test_a_batch_of_another_file_is_none_of_this_one() -> None:
    other = encode_batch(b"another!", 2, [entry("x-0", 0, 0, 1, b"not of this file")])
    inside = encode_batch(ID, 2, [entry("a-0", 0, 5, 2, other)])
    assert content_of(decode_file(encoded(TWO[:1]) + other)) == TWO[:1]
    torn = decode_file(encoded(TWO[:1]) + inside[: len(inside) - 1])
    assert (content_of(torn)[:1], whole(torn), torn.damage) == (TWO[:1], [True, False], None), "no batch of a client"


def test_damaged_bytes_stay_damaged_in_a_copy() -> None:
    damaged = entry("a-0", 0, 10, 3, b"first")._replace(content=None)
    sound = entry("b-0", 0, 10, 3, b"second")
    (batch,) = decode_file(encoded([([damaged, sound], [])])).batches
    assert batch.entries == (damaged, sound)


def flipped(data: bytes, position: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 0x40
    return bytes(changed)
