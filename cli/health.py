"""`oncelog health`: whether a broker answers requests and its disk takes writes; for health checks of containers."""

from __future__ import annotations

import click

from .bootstrap import bootstrap_option, run
from .json_output import json_option, print_json

TIMEOUT_S = 2.5
"""Below the three seconds after which Docker gives up a health check."""


@click.command(short_help="Check that a broker answers and can write.")
@json_option
@bootstrap_option
def health(as_json: bool, bootstrap: str) -> int:
    """Exit with 0 when the broker at --bootstrap answers and its data directory takes a small write, else with 1.

    \b
    oncelog health --bootstrap 127.0.0.1:9092
    """
    problem = run(_problem(bootstrap))
    if as_json:
        print_json({"broker": bootstrap, "healthy": problem is None, "problem": problem})
    else:
        click.echo(f"{bootstrap}: {problem or 'healthy'}", err=problem is not None)
    return 1 if problem else 0


async def _problem(bootstrap: str) -> str | None:
    import asyncio

    from ..protocol.errors import DecodeError

    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await _ask(bootstrap)
    except TimeoutError:
        return f"no answer within {TIMEOUT_S:g} s"
    except (OSError, EOFError) as error:
        return f"cannot be reached: {error}"
    except DecodeError as error:
        return f"answered with something that is not Kafka's protocol: {error}"


async def _ask(bootstrap: str) -> str | None:
    """Ask for the state of the data directories: it needs the broker's event loop, and says what the disk did."""
    import asyncio

    from ..protocol.errors import ErrorCode, error_code
    from ..protocol.framing import decode_response, encode_request
    from ..protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

    host, _, port = bootstrap.partition(",")[0].strip().rpartition(":")
    if not host or not port.isdigit():
        raise click.BadParameter(f"{bootstrap!r} is not HOST:PORT", param_hint="--bootstrap")
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    try:
        writer.writelines(encode_request(DescribeLogDirsRequest(topics=[]), 1, 1, "oncelog-health"))
        size = int.from_bytes(await reader.readexactly(4), "big")
        _, answer = decode_response(DescribeLogDirsResponse, 1, await reader.readexactly(size))
    finally:
        writer.close()
    for directory in answer.results:
        code = error_code(directory.error_code)
        if code is not ErrorCode.NONE:
            return f"the data directory {directory.log_dir} does not take writes: {code.name}. See the broker's log"
    return None if answer.results else "it has no data directory that works. See the broker's log"
