"""A web service: each request writes to two topics in one transaction, even if requests run concurrently.

Shows   TransactionalProducerPool on Starlette, and the HTTP status for each kind of failure. FastAPI accepts the same
        lifespan. Several processes (`--workers 4`) share the pool's transactional ids automatically.
Run     pip install oncelog starlette uvicorn
        oncelog serve --data-dir data --listen 127.0.0.1:9092
        uvicorn --app-dir examples web_service:app
        curl -d '{"id": "o-1", "customer": "alice", "cents": 1260}' http://127.0.0.1:8000/orders
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncGenerator

from oncelog import (
    AbortableError,
    CommitUnknownError,
    PoolExhaustedError,
    ProducerFencedError,
    TransactionalProducerPool,
)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

BOOTSTRAP = os.environ.get("ONCELOG_BOOTSTRAP", "127.0.0.1:9092")


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[None]:
    """Open the pool when the server starts, and close it, which ends every transaction, when the server stops."""
    async with TransactionalProducerPool(
        bootstrap_servers=BOOTSTRAP,
        prefix="shop-",  # the ids are shop-0 to shop-9: a restart takes over the transactions that a crash left open
        size=10,  # at most ten transactions at a time, in all processes together
        max_wait_s=2.0,
    ) as pool:
        app.state.pool = pool
        yield


async def create_order(request: Request) -> JSONResponse:
    """Write an order and its invoice in one transaction: a read_committed consumer sees both or neither."""
    try:
        order = json.loads(await request.body())
        key, customer, cents = str(order["id"]).encode(), str(order["customer"]), int(order["cents"])
    except (ValueError, KeyError, TypeError):
        return JSONResponse({"error": "expected {id, customer, cents}"}, 400)
    pool: TransactionalProducerPool = request.app.state.pool
    try:
        async with pool.transaction() as txn:  # commits at the end of the block, aborts on an exception
            txn.send("orders", json.dumps({"customer": customer}).encode(), key=key)
            txn.send("invoices", json.dumps({"customer": customer, "cents": cents}).encode(), key=key)
    except (PoolExhaustedError, AbortableError, ProducerFencedError) as error:  # the transaction was not committed
        return JSONResponse({"error": str(error)}, 503, headers={"Retry-After": "1"})
    except CommitUnknownError as error:  # the HTTP client has to look up its order before it tries again
        return JSONResponse({"error": f"it is not known whether the order was written: {error}"}, 504)
    return JSONResponse({"id": order["id"]}, 201)


async def health(request: Request) -> JSONResponse:
    """Report the pool's state to a load balancer."""
    pool: TransactionalProducerPool = request.app.state.pool
    return JSONResponse(pool.status._asdict())


app = Starlette(
    routes=[Route("/orders", create_order, methods=["POST"]), Route("/health", health)],
    lifespan=lifespan,
)
