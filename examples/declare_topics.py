"""An admin script: create and change the cluster's topics as this file declares them. Other topics stay unchanged.

Shows   Admin: create topics, add partitions, set configs. The script may run on each deployment, because a second run
        changes nothing. With --dry-run the broker checks the changes but does not make them.
Run     oncelog serve --data-dir data --listen 127.0.0.1:9092
        python examples/declare_topics.py --dry-run
        python examples/declare_topics.py          # exit code 1 if a topic could not be changed
"""

from __future__ import annotations

import asyncio
import os
import sys

from oncelog import Admin, ConfigResource, KafkaError, NewTopic, ResourceType

BOOTSTRAP = os.environ.get("ONCELOG_BOOTSTRAP", "127.0.0.1:9092")

TOPICS = [
    NewTopic("orders", partitions=6, configs={"retention.ms": "2592000000"}),
    NewTopic("invoices", partitions=6, configs={"retention.ms": "-1"}),
    NewTopic("customers", partitions=3, configs={"cleanup.policy": "compact"}),
]


async def declare(admin: Admin, topic: NewTopic, dry_run: bool) -> list[str]:
    """Create or change one topic as declared; return a description of each change."""
    if topic.name not in await admin.list_topics():
        await admin.create_topics([topic], validate_only=dry_run)
        return [f"created with {topic.partitions} partitions"]
    changes: list[str] = []
    resource = ConfigResource(ResourceType.TOPIC, topic.name)
    entries = (await admin.describe_configs([resource]))[resource]
    different = {name: value for name, value in topic.configs.items() if entries[name].value != value}
    if different:
        await admin.alter_configs({resource: different}, validate_only=dry_run)
        changes += [f"{name} set to {value}" for name, value in different.items()]
    partitions = len((await admin.describe_topics([topic.name]))[topic.name].partitions)
    if partitions > topic.partitions:
        print(f"{topic.name}: has {partitions} partitions instead of {topic.partitions}: partitions cannot be removed")
    if partitions < topic.partitions:  # from now on, new records of a key may go to another partition than old ones
        if not dry_run:
            await admin.create_partitions({topic.name: topic.partitions})
        changes.append(f"grown from {partitions} to {topic.partitions} partitions")
    return changes


async def main(dry_run: bool) -> int:
    """Create or change all topics as declared; return the exit code, 1 if a topic failed."""
    failed = False
    async with Admin(bootstrap_servers=BOOTSTRAP) as admin:
        for topic in TOPICS:
            try:
                changes = await declare(admin, topic, dry_run)
            except KafkaError as error:
                print(f"{topic.name}: {error}", file=sys.stderr)
                failed = True
            else:
                print(f"{topic.name}: {', '.join(changes) or 'nothing to do'}{' (dry run)' * dry_run}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(dry_run="--dry-run" in sys.argv[1:])))
