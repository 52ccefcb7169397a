"""Check the records of a client's batch without building record objects: `RecordWalk`.

A valid batch fulfils these rules:

* The records fill the batch exactly, and the fields of each record fill the record exactly.
* The number of records is that of the header.
* The offset deltas are 0, 1, 2 and so on.
* The timestamps fit into int64.

Records that pass this check can be read by `records.decode_batch` and by every other client. The walk never copies a
key or value.

`advance` does a bounded amount of work, so that a caller on an event loop can pause between calls. One step is about
one record (0.4 µs). Where neighbouring records have the same shape (equal sizes of all fields), whole columns of bytes
are compared at once, which costs a twentieth of that per record.

A record's header count is checked before the headers are visited. The check fails if the record has too many headers,
or if the batch has too many records and headers together.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from .batch_header import BatchBudgetExceeded, BatchHeader, CorruptBatch
from .compression import MAX_DECOMPRESSED_BYTES
from .record_varint import read_varint

MAX_BATCH_OBJECTS: Final = 1_000_000
MAX_RECORD_HEADERS: Final = 10_000

MIN_RECORD_SIZE: Final = 7
"""The smallest record: one byte each for length, attributes, two deltas, null key, null value and the header count."""

MAX_LISTED: Final = 100
"""Maximum number of records without a key that `null_keys` lists."""

_ALIKE: Final = 3
_MOST_ALIKE: Final = 48
_AHEAD: Final = 64
_FEWEST: Final = 24
"""These numbers decide when columns are compared, and for how many records at once.

After `_ALIKE` pairs of neighbours of equal size, the next `_AHEAD` records are compared with the last one. While all of
them match, each comparison takes four times as many records as the one before. Fewer than `_FEWEST` records are visited
one by one, because a comparison would be slower. If a comparison finds fewer matches, twice as many neighbours must
have equal sizes before the next one, up to `_MOST_ALIKE`."""
_STEPS_OF_RUN: Final = 16
_RECORDS_PER_STEP: Final = 16
_HEADERS_PER_STEP: Final = 2

# The encoded offset deltas of successive records, by column. In a block of 8192 deltas, only two bytes of a delta vary.
_BLOCK: Final = 8192
_ONE_BYTE: Final = bytes(range(0, 128, 2))
_FIRST_OF_MORE: Final = bytes(0x80 | delta << 1 & 0x7F for delta in range(64)) * (_BLOCK // 64)
_SECOND_OF_TWO: Final = bytes(delta >> 6 for delta in range(_BLOCK))
_SECOND_OF_MORE: Final = bytes(0x80 | delta >> 6 for delta in range(_BLOCK))

_CONTINUES: Final = bytes(byte >> 7 for byte in range(256))
"""Translates a byte of a varint into 1 if another byte follows, else into 0."""

_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1


class RecordLimits(NamedTuple):
    """The limits of one batch.

    `batch_objects` is the maximum number of records and headers together, and `record_headers` the maximum number of
    headers of one record. `decompressed_bytes` is the maximum size of all records together.
    """

    batch_objects: int = MAX_BATCH_OBJECTS
    record_headers: int = MAX_RECORD_HEADERS
    decompressed_bytes: int = MAX_DECOMPRESSED_BYTES

    def check_count(self, record_count: int, size: int) -> None:
        """Check that a batch may have `record_count` records, and that they can fit into `size` decompressed bytes.

        Raises CorruptBatch if they cannot fit, BatchBudgetExceeded if they exceed the limit `batch_objects`.
        """
        if not 0 < record_count * MIN_RECORD_SIZE <= size:
            raise CorruptBatch(f"{record_count} records do not fit into the {size} bytes of a batch")
        if record_count > self.batch_objects:
            raise BatchBudgetExceeded(
                f"a batch has {record_count} records, but at most {self.batch_objects} are allowed"
            )


DEFAULT_LIMITS: Final = RecordLimits()


class RecordWalk:
    """One pass over the decompressed records of a batch from a client.

    After `advance` has returned True, `min_timestamp` and `max_timestamp` are those of the records in ms, and
    `null_keys` lists the indexes of the records without a key, up to a limit.
    """

    __slots__ = (
        "_ahead",
        "_alike",
        "_at",
        "_data",
        "_header",
        "_highest",
        "_index",
        "_limits",
        "_lowest",
        "_objects",
        "max_timestamp",
        "min_timestamp",
        "null_keys",
    )

    def __init__(self, data: bytes | bytearray, header: BatchHeader, limits: RecordLimits = DEFAULT_LIMITS) -> None:
        """Begin the walk over `data`, the decompressed records. Raises CorruptBatch if the count cannot be right."""
        count = header.record_count
        limits.check_count(count, len(data))
        self._data = data
        self._header = header
        self._limits = limits
        self._at = 0
        self._index = 0
        self._objects = count
        self._ahead = _AHEAD
        self._alike = _ALIKE
        self._lowest: int | None = None
        self._highest = 0
        self.min_timestamp = self.max_timestamp = -1
        self.null_keys: list[int] = []

    def advance(self, steps: int) -> bool:
        """Check about `steps` more records. Return True when the whole batch is valid. Raises CorruptBatch."""
        try:
            self._visit(steps)
        except IndexError:
            raise CorruptBatch(f"record {self._index} or a later record is cut off") from None
        if self._index < self._header.record_count:
            return False
        if self._at != len(self._data):
            raise CorruptBatch(f"{len(self._data) - self._at} bytes follow the last record")
        assert self._lowest is not None
        self.min_timestamp = self._header.base_timestamp + self._lowest
        self.max_timestamp = self._header.base_timestamp + self._highest
        if self.min_timestamp < _INT64_MIN or self.max_timestamp > _INT64_MAX:
            raise CorruptBatch("the timestamp of a record is not an int64")
        return True

    def _visit(self, steps: int) -> None:
        """Check about `steps` more records, one by one or in runs of one shape."""
        count = self._header.record_count
        while self._index < count and steps > 0:
            first, objects = self._index, self._objects
            begin = self._visit_each(min(count, first + steps))
            steps -= self._index - first + (self._objects - objects) // _HEADERS_PER_STEP
            while begin >= 0 and steps > 0 and (run := self._run(begin, self._at, self._index)):
                size = self._at - begin
                self._index += run
                self._at += run * size
                begin = self._at - size
                steps -= _STEPS_OF_RUN + run // _RECORDS_PER_STEP

    def _visit_each(self, stop: int) -> int:
        """Check records one by one up to index `stop`, or until several successive records have the same size.

        Return the position of the last of these records. Return -1 if `stop` was reached, or if the walk must pause
        earlier because the records have many headers.
        """
        # This is the broker's loop over a producer's records. Varints of one and two bytes are decoded inline, because
        # a call costs as much as the rest of a field. Reading past the end raises IndexError. Lengths only move `at`
        # forward, and the last byte of a record is always read, so `at == end` proves that all fields were within the
        # record.
        data = self._data
        at = self._at
        pause = self._objects + _HEADERS_PER_STEP * (stop - self._index)
        alike_enough = self._alike
        last_delta = last_body = -1
        alike = 0
        for index in range(self._index, stop):
            begin = at
            body = data[at]
            if body < 0x80:
                at += 1
            elif (more := data[at + 1]) < 0x80:
                body += (more << 7) - 0x80
                at += 2
            else:
                body, at = read_varint(data, at)
            end = at + (body >> 1)
            at += 1  # skip the record's attributes: none are defined

            delta = data[at]
            if delta < 0x80:
                at += 1
            elif (more := data[at + 1]) < 0x80:
                delta += (more << 7) - 0x80
                at += 2
            else:
                delta, at = read_varint(data, at, 10)
            if delta != last_delta:
                last_delta = delta
                self._note(delta)

            delta = data[at]
            if delta < 0x80:
                at += 1
            elif (more := data[at + 1]) < 0x80:
                delta += (more << 7) - 0x80
                at += 2
            else:
                delta, at = read_varint(data, at)
            if delta != index << 1:
                raise CorruptBatch(f"record {index} has offset delta {(delta >> 1) ^ -(delta & 1)} instead of {index}")

            length = data[at]
            if length < 0x80:
                at += 1
            else:
                length, at = read_varint(data, at)
            if not length & 1:
                at += length >> 1
            elif length != 1:
                raise CorruptBatch(f"the key of record {index} has a negative length")
            elif len(self.null_keys) < MAX_LISTED:
                self.null_keys.append(index)

            length = data[at]
            if length < 0x80:
                at += 1
            elif (more := data[at + 1]) < 0x80:
                length += (more << 7) - 0x80
                at += 2
            else:
                length, at = read_varint(data, at)
            if not length & 1:
                at += length >> 1
            elif length != 1:
                raise CorruptBatch(f"the value of record {index} has a negative length")

            if data[at]:
                at = self._headers(at, end, index)
                if self._objects > pause and at == end and not body & 1:
                    self._index, self._at = index + 1, at
                    return -1
            else:
                at += 1
            if at != end or body & 1:
                raise CorruptBatch(f"record {index} does not end where its length says")
            if body != last_body:
                last_body = body
                alike = 0
                continue
            alike += 1
            if alike == alike_enough:
                self._index, self._at = index + 1, at
                return begin
        self._index, self._at = stop, at
        return -1

    def _note(self, delta: int) -> None:
        """Update the lowest and the highest delta with a timestamp delta, which is still zigzag encoded."""
        signed = (delta >> 1) ^ -(delta & 1)
        if self._lowest is None:
            self._lowest = self._highest = signed
        elif signed > self._highest:
            self._highest = signed
        elif signed < self._lowest:
            self._lowest = signed

    def _headers(self, at: int, end: int, index: int) -> int:
        """Check a record's headers, whose count is at `at`. Return the position where they end."""
        data = self._data
        count, at = read_varint(data, at)
        if count & 1 or count > end - at:
            raise CorruptBatch(f"record {index} has an impossible number of headers")
        count >>= 1
        self._objects += count
        limits = self._limits
        if count > limits.record_headers:
            raise CorruptBatch(f"record {index} has {count} headers, but at most {limits.record_headers} are allowed")
        if self._objects > limits.batch_objects:
            raise BatchBudgetExceeded(f"a batch has more records and headers than the limit of {limits.batch_objects}")
        for _ in range(count):
            length = data[at]
            if length < 0x80:
                at += 1
            else:
                length, at = read_varint(data, at)
            if length & 1:
                raise CorruptBatch(f"a header of record {index} has no name")
            at += length >> 1
            length = data[at]
            if length < 0x80:
                at += 1
            else:
                length, at = read_varint(data, at)
            if not length & 1:
                at += length >> 1
            elif length != 1:
                raise CorruptBatch(f"a header of record {index} has a value of negative length")
        return at

    # --- runs of records of one shape --------------------------------------------------------------------------------

    def _run(self, begin: int, end: int, index: int) -> int:
        """Return how many records from position `end` on are valid and have the shape of the record before them.

        The record before them lies from `begin` to `end`. `index` is the index of the first record after it. At most
        `_ahead` records are compared. The result is 0 if fewer than `_FEWEST` of them match. The loop over single
        records then checks them.
        """
        size = end - begin
        width = 1 if index < 64 else 2 if index < _BLOCK else 3 if index < 128 * _BLOCK else 4
        block_end = 64 if width == 1 else (index // _BLOCK + 1) * _BLOCK
        look = min(self._ahead, self._header.record_count - index, block_end - index, (len(self._data) - end) // size)
        if look < _FEWEST:
            return 0
        shape = _shape(self._data, begin, end)
        if shape is None or shape.offset_width != width:
            return 0
        objects = self._objects + look * shape.headers
        if objects > self._limits.batch_objects:
            return 0
        run = self._match(shape, begin, end, size, index, look)
        if run < _FEWEST:
            self._ahead = _AHEAD
            self._alike = min(2 * self._alike, _MOST_ALIKE)
            return 0
        self._objects += run * shape.headers
        if shape.null_key and len(self.null_keys) < MAX_LISTED:
            self.null_keys += range(index, index + min(run, MAX_LISTED - len(self.null_keys)))
        self._note_column(end + shape.timestamp, shape.timestamp_width, size, run)
        if run == look:
            self._ahead, self._alike = min(self._ahead * 4, _BLOCK), _ALIKE
        else:
            self._ahead = _AHEAD
        return run

    def _match(self, shape: _Shape, begin: int, end: int, size: int, index: int, run: int) -> int:
        """Return how many of `run` records, from position `end` on, have the shape of the record at `begin`."""
        data = self._data
        for position in shape.constants:
            column = data[end + position : end + run * size : size]
            byte = data[begin + position : begin + position + 1]
            if column != byte * run:
                run -= len(column.lstrip(byte))
                if run < _FEWEST:
                    return 0
        within = index & (_BLOCK - 1)
        width = shape.offset_width
        for number in range(width):
            at = end + shape.offset + number
            column = data[at : end + run * size : size]
            if width == 1:
                expected = _ONE_BYTE[within : within + run]
            elif number == 0:
                expected = _FIRST_OF_MORE[within : within + run]
            elif number == 1:
                expected = (_SECOND_OF_TWO if width == 2 else _SECOND_OF_MORE)[within : within + run]
            else:
                more = 0x80 if number < width - 1 else 0
                expected = bytes((more | index >> (7 * number - 1) & 0x7F,)) * run
            if column != expected:
                return 0  # the loop over single records then finds the invalid one, if any
        for number in range(shape.timestamp_width):
            column = data[end + shape.timestamp + number : end + run * size : size].translate(_CONTINUES)
            byte = b"\1" if number < shape.timestamp_width - 1 else b"\0"
            if column != byte * run:
                run -= len(column.lstrip(byte))
                if run < _FEWEST:
                    return 0
        return run

    def _note_column(self, at: int, width: int, size: int, run: int) -> None:
        """Update the lowest and the highest delta with the timestamp deltas of `run` records of `size` bytes.

        The first delta is at `at` and has `width` bytes.
        """
        data = self._data
        columns = [data[at + number : at + (run - 1) * size + number + 1 : size] for number in range(width)]
        if width == 1:
            for delta in set(columns[0]):
                self._note(delta)
            return
        for pieces in set(zip(*columns, strict=True)):
            self._note(sum((byte & 0x7F) << 7 * number for number, byte in enumerate(pieces)))


class _Shape(NamedTuple):
    """The positions of a record's parts, in bytes from its beginning.

    `constants` are the positions of all lengths and counts, whose bytes are equal in all records of one shape."""

    timestamp: int
    timestamp_width: int
    offset: int
    offset_width: int
    constants: list[int]
    headers: int
    null_key: bool


_MOST_HEADERS: Final = 16


def _shape(data: bytes | bytearray, begin: int, end: int) -> _Shape | None:
    """Return the shape of the valid record from `begin` to `end`, or None if the record has too many headers."""
    _, at = read_varint(data, begin)
    constants = list(range(at - begin))
    timestamp = at + 1
    _, offset = read_varint(data, timestamp, 10)
    _, at = read_varint(data, offset)
    offset_width = at - offset
    null_key = bool(read_varint(data, at)[0] & 1)
    for _ in range(2):
        at = _skip_part(data, begin, at, constants)
    count, behind = read_varint(data, at)
    headers = count >> 1
    if headers > _MOST_HEADERS:
        return None
    constants += range(at - begin, behind - begin)
    at = behind
    for _ in range(2 * headers):
        at = _skip_part(data, begin, at, constants)
    assert at == end, "the record was visited"
    return _Shape(timestamp - begin, offset - timestamp, offset - begin, offset_width, constants, headers, null_key)


def _skip_part(data: bytes | bytearray, begin: int, at: int, constants: list[int]) -> int:
    """Skip the key, value or header part whose length is at `at`. Return the position where the part ends."""
    length, behind = read_varint(data, at)
    constants += range(at - begin, behind - begin)
    return behind if length & 1 else behind + (length >> 1)
