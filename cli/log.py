"""Define `oncelog log`: print and repair the files of a data directory that no running broker uses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from .json_output import json_option, print_json

if TYPE_CHECKING:
    from ..broker.log.damage import Damage
    from ..protocol.records import BatchHeader, Record


@click.group(short_help="Print and repair files of a data directory.")
def log() -> None:
    """Print and repair the files of a data directory.

    \b
    oncelog log dump data/orders-0/00000000000000000000.log --records
    oncelog log repair data --dry-run
    """


@log.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--records", "with_records", is_flag=True, help="Print the records of each batch as well.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def dump(file: Path, with_records: bool, as_json: bool) -> int:
    """Print the batches of a segment FILE (.log): offsets, sizes, producers, checksums.

    FILE may be a segment of Apache Kafka. The exit code is 1 if the file ends within a batch, a checksum is wrong or
    records cannot be read.

    \b
    oncelog log dump data/orders-0/00000000000000000000.log
    oncelog log dump data/orders-0/00000000000000000000.log --records --json | jq .value
    """
    from ..protocol.errors import KafkaError
    from ..protocol.records import HEADER_SIZE, CorruptBatch, decode_batch, read_batch_header, verify_crc

    broken = unreadable = 0
    first_broken: int | None = None
    position = 0
    size = file.stat().st_size
    with file.open("rb") as segment:
        while position < size:
            lead = _read(segment, position, HEADER_SIZE)
            try:
                header = read_batch_header(lead, whole=False) if len(lead) == HEADER_SIZE else None
            except CorruptBatch as error:
                if first_broken is None:
                    raise _damaged(file, position, error.message) from None
                header = None
            complete = header is not None and position + header.size <= size
            if first_broken is not None and not complete:
                raise _damaged(file, first_broken, "the checksum of the batch is wrong, and no batch begins at its end")
            if header is None or not complete:
                raise click.ClickException(
                    f"{file} ends within the batch at byte {position}: it contains only the first"
                    f" {size - position} bytes of the batch. A broker removes an incomplete last batch when it starts."
                    " If the batch is still there afterwards, use `oncelog log repair`."
                )
            batch = _read(segment, position, header.size)
            sound = verify_crc(batch, 0, header)
            if not sound:
                broken += 1
                first_broken = position if first_broken is None else first_broken
            click.echo(_batch_line(position, header, sound, as_json))
            if with_records and sound:
                try:
                    for record in decode_batch(batch, 0, header):
                        click.echo(_record_line(record, header, as_json))
                except KafkaError as error:
                    unreadable += 1
                    click.echo(f"  the records of this batch cannot be read: {error.message}", err=True)
            position += header.size
    if broken:
        raise click.ClickException(
            f"{broken} batches of {file} have a wrong checksum. `oncelog log repair` truncates the file before the"
            " first of them."
        )
    if unreadable:
        raise click.ClickException(
            f"The records of {unreadable} batches of {file} cannot be read, although the checksums are right: a client"
            " wrote malformed records. Consumers must seek beyond these batches."
        )
    return 0


def _damaged(file: Path, position: int, problem: str) -> click.ClickException:
    return click.ClickException(
        f"{file} is damaged at byte {position}: {problem}. `oncelog log repair` truncates the file there."
    )


def _read(segment: BinaryIO, position: int, size: int) -> bytes:
    segment.seek(position)
    return segment.read(size)


def _batch_line(position: int, header: BatchHeader, sound: bool, as_json: bool) -> str:
    from ..protocol.compression import Compression

    codec = Compression(header.compression).name.lower() if header.compression <= Compression.ZSTD else "unknown"
    if as_json:
        return json.dumps({"batch": {**header._asdict(), "position": position, "size": header.size, "crc_ok": sound}})
    kind = " control" if header.is_control else " transactional" if header.is_transactional else ""
    producer = (
        f" producer {header.producer_id} epoch {header.producer_epoch}"
        f" sequences {header.base_sequence}..{header.last_sequence}"
        if header.has_producer
        else ""
    )
    return (
        f"{header.base_offset}..{header.last_offset} records {header.record_count} at byte {position}"
        f" size {header.size} {codec}{kind}{producer} epoch {header.partition_leader_epoch} time {header.max_timestamp}"
        f" crc {'ok' if sound else 'WRONG'}"
    )


def _record_line(record: Record, header: BatchHeader, as_json: bool) -> str:
    from .formats import record_as_json, text_of

    if header.is_control:
        from ..protocol.control_records import read_control_record

        marker = read_control_record(record)
        if as_json:
            return json.dumps({"offset": record.offset, "control": marker.type.name, "epoch": marker.coordinator_epoch})
        return f"  {record.offset} {marker.type.name} coordinator epoch {marker.coordinator_epoch}"
    if as_json:
        return record_as_json(record.offset, record.timestamp, record.key, record.value, record.headers)
    return f"  {record.offset} {record.timestamp} {text_of(record.key)} {text_of(record.value)}"


@log.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Print the damage and what a repair would remove, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def repair(directory: Path, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Cut off damaged partitions of a data DIRECTORY at the first damage.

    The command first saves the removed bytes in DIRECTORY/removed, where they stay until you delete them. The broker
    must not be running. Consumers lose all records from the damage on, including undamaged and acknowledged ones. If
    only the beginning of a partition is damaged or missing, the records after it stay. Repair a partition only if you
    cannot restore it from elsewhere. Damaged indexes, snapshots and checkpoints need no repair: the broker rebuilds
    them.

    Partitions that cannot be read or written are listed, and the others are repaired. The exit code is 1 if there are
    such partitions or, with --dry-run, damage.

    \b
    oncelog log repair data --dry-run       print the damage
    oncelog log repair data                 ask for confirmation, then repair
    """
    from ..broker.log import DataDirectoryError
    from ..broker.log.repair import inspect
    from ..broker.log.repair import repair as cut
    from ..broker.system.ports import RealFileSystem

    filesystem = RealFileSystem()
    repaired: Sequence[object] = []
    failures: dict[str, OSError] = {}
    try:
        path = str(directory.absolute())
        damages = inspect(path, filesystem, failures)
        if not as_json:
            for damage in damages:
                click.echo(_damage_lines(damage))
            for name, error in failures.items():
                click.echo(_failure_lines(name, error))
        if damages and not dry_run:
            if not yes:
                click.confirm(f"Repair {len(damages)} partition(s)?", abort=True, err=True)
            known = set(failures)
            repaired = cut(path, filesystem, failures)
            if not as_json:
                for name in failures.keys() - known:
                    click.echo(_failure_lines(name, failures[name]))
    except DataDirectoryError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        reasons = {name: str(error) for name, error in failures.items()}
        print_json({"damages": [asdict(one) for one in damages], "repaired": len(repaired), "failures": reasons})
    elif not damages and not failures:
        click.echo(f"{directory}: no damage found.")
    elif damages and not dry_run:
        click.echo(f"{len(repaired)} partition(s) repaired. The removed bytes are saved in {directory}/removed.")
    return 1 if failures or (damages and dry_run) else 0


def _failure_lines(name: str, error: OSError) -> str:
    """Return two lines of text: why a partition cannot be read or written, and the remedy."""
    return f"{name}: {error}\n  the partition is not repaired: check the disk, then run the command again"


def _damage_lines(damage: Damage) -> str:
    """Return two lines of text: the damage of a partition or the journal, and the records that a repair removes."""
    if not damage.topic:
        return f"{damage.reason}\n  a repair keeps the file in `removed`"
    if damage.new_start_offset >= 0:
        removed = f"{damage.lost_bytes} bytes of deleted records" if damage.lost_bytes else "nothing else"
        return (
            f"{damage.topic}-{damage.partition}: {damage.file}: {damage.reason}\n"
            f"  a repair sets the partition's first offset to {damage.new_start_offset}, and removes {removed}"
        )
    lost = (
        "including records that may have been acknowledged and read"
        if damage.below_recovery_point
        else "an incomplete write at the end, which the broker removes automatically when it starts"
    )
    return (
        f"{damage.topic}-{damage.partition}: {damage.file} is damaged at byte {damage.position}: {damage.reason}\n"
        f"  a repair removes everything from offset {damage.lost_from_offset} on: {damage.lost_bytes} bytes, with"
        f" {damage.whole_records} undamaged records ({lost})"
    )
