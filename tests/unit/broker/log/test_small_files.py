"""Files that the disk can read only in part, and how their damage is told."""

from __future__ import annotations

import errno

from oncelog.broker.log.removed import keep
from oncelog.broker.log.small_files import read_readable
from structlog.testing import capture_logs
from support.faulty_filesystem import FaultyFileSystem
from support.journals import failing

BLOCK = 4096


def test_bytes_that_cannot_be_read_are_zeros_and_the_warning_names_their_file(fs: FaultyFileSystem) -> None:
    fs.make_directory("/data")
    file = fs.open("/data/file", create=True)
    file.write_at([b"a" * 3 * BLOCK], 0)
    fs.before = failing("read", "/data/file", errno.EIO, times=2)  # the whole, and the first block
    unreadable: list[range] = []
    with capture_logs() as lines:
        content = read_readable(file, "/data/file", 3 * BLOCK, 0, unreadable)
    assert content == bytes(BLOCK) + b"a" * 2 * BLOCK
    assert unreadable == [range(BLOCK)]
    assert [(line["file"], line["position"]) for line in lines] == [("/data/file", 0)]


def test_copy_of_a_file_that_is_read_only_in_part_names_it(fs: FaultyFileSystem) -> None:
    fs.make_directory("/data")
    fs.open("/data/file", create=True).write_at([b"a" * 2 * BLOCK], 0)
    fs.before = failing("read", "/data/file", errno.EIO, times=2)
    with capture_logs() as lines:
        assert keep(fs, "/data/file", 10, "/data/kept") == 2 * BLOCK - 10
    assert [line["file"] for line in lines] == ["/data/file"]
    assert fs.read_file("/data/kept/file.from-10") == bytes(BLOCK) + b"a" * (BLOCK - 10)
