"""Blocking clients for scripts, Django and notebooks: `Producer`, `Consumer`, `Admin`, and `Broker` for tests.

::

    from oncelog.sync import Consumer, Producer

    with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        producer.send("orders", b"42 apples", key=b"alice").result()

    with Consumer(bootstrap_servers="127.0.0.1:9092", group_id="packing", topics=["orders"]) as consumer:
        for record in consumer:
            print(record.value)

The blocking clients have the settings, methods and errors of the asyncio clients of the same names. Several threads may
use a client. All clients run in one event loop, in a daemon thread that the first call starts. A started client cannot
be used after a fork: in the child process every call raises IllegalStateError. When the interpreter exits, it waits at
most EXIT_TIMEOUT_S seconds to close the clients that are still open, and a second longer if a function of the program
blocks the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .admin import Admin
from .background import EXIT_TIMEOUT_S
from .consumer import Consumer
from .producer import Delivery, Producer, Transaction

if TYPE_CHECKING:
    from .broker import Broker

__all__ = ["EXIT_TIMEOUT_S", "Admin", "Broker", "Consumer", "Delivery", "Producer", "Transaction"]


if not TYPE_CHECKING:  # clients do not need the broker's modules

    def __getattr__(name: str) -> object:
        if name != "Broker":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .broker import Broker

        globals()[name] = Broker
        return Broker
