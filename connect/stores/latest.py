"""`LatestRecords`: finds the last record of a key whose records are in several partitions.

That happens after partitions were added to a topic: a key may then belong to a different partition, and only the
timestamps order the records of two partitions.
"""

from __future__ import annotations

from ...client.producer.partitioner import partition_for_key


class LatestRecords:
    """The partition and the timestamp, in ms since the epoch, of the last known record of each key.

    The last record of a key is its last record in the partition with the key's highest timestamp. So all readers get
    the same result, in whatever order they read the partitions.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[int, int]] = {}

    def add(self, key: bytes, partition: int, timestamp_ms: int, partitions: int) -> bool:
        """Return whether a record is newer than the known records of its key. Each partition must be added in order.

        If the key's records in two partitions have the same timestamp, the partition to which the key belongs in a
        topic of `partitions` partitions is newer, because producers that know all partitions write to it. If the key
        belongs to neither, the partition with the higher number is newer.
        """
        known = self._known.get(key)
        if known is not None:
            known_partition, known_ms = known
            if partition == known_partition:
                timestamp_ms = max(timestamp_ms, known_ms)
            elif timestamp_ms < known_ms:
                return False
            elif timestamp_ms == known_ms:
                home = partition_for_key(key, partitions)
                if (known_partition == home, known_partition) > (partition == home, partition):
                    return False
        self._known[key] = partition, timestamp_ms
        return True
