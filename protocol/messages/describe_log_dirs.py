"""Define DescribeLogDirsRequest and DescribeLogDirsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, boolean, int16, int32, int64, request, response, string, struct


@struct
class DescribeLogDirsPartition(Struct):
    partition_index: int = int32("0+")
    partition_size: int = int64("0+")
    offset_lag: int = int64("0+")
    is_future_key: bool = boolean("0+")


@struct
class DescribeLogDirsTopic(Struct):
    name: str = string("0+")
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition, "0+")


@struct
class DescribeLogDirsResult(Struct):
    error_code: int = int16("0+")
    log_dir: str = string("0+")
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic, "0+")
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)


@response(key=35, versions="1-4", flexible="2+")
class DescribeLogDirsResponse(Response):
    """The error of each log directory, and each partition's size in bytes and lag in offsets. v4 adds the total and
    usable bytes of the volume (KIP-827).
    """

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult, "0+")


@struct
class DescribableLogDirTopic(Struct):
    topic: str = string("0+")
    partitions: list[int] = array("int32", "0+")


@request(key=35, versions="1-4", flexible="2+")
class DescribeLogDirsRequest(Request[DescribeLogDirsResponse]):
    """Asks for the sizes of partitions in this broker's log directories (KIP-113). Null `topics` means all."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, "0+", nullable="0+")
