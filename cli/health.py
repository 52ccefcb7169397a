"""Define `oncelog health`, the health check of a container.

It checks that a broker answers requests and can write to its disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .bootstrap import bootstrap_option, client_settings, run
from .http_client import exchange, http_options
from .json_output import json_option, print_json

if TYPE_CHECKING:
    from ..protocol.messages.describe_log_dirs import DescribeLogDirsResponse

TIMEOUT_S = 2.5
"""Longest wait for the broker. It is shorter than the three seconds after which Docker ends a health check."""


@click.command(short_help="Check that a broker answers and can write.")
@json_option
@bootstrap_option
@click.option("--url", metavar="URL", help="Ask metrics.listener at this address, such as https://localhost:9404.")
@http_options
def health(as_json: bool, bootstrap: str, url: str | None) -> int:
    """Exit with code 0 if the broker answers and can write to its data directory, else with code 1.

    The command sends a request of Kafka's protocol to --bootstrap or, with --url, `GET /health` to metrics.listener.
    If several addresses are given, the command uses only the first.
    --ca-file, --cert-file, --user-file and --token-file have an effect only with --url.

    \b
    oncelog health --bootstrap 127.0.0.1:9092
    oncelog health --url https://localhost:9404 --ca-file ca.pem
    """
    if url is None:
        settings = client_settings(bootstrap, "any")
        asked = settings["bootstrap_servers"]
        addresses = ",".join(map(str, asked)) if isinstance(asked, list) else str(asked)
        broker = addresses.partition(",")[0].strip()
        problem = run(_problem(broker, settings))
    else:
        broker, problem = url, _problem_at(url)
    if as_json:
        print_json({"broker": broker, "healthy": problem is None, "problem": problem})
    else:
        click.echo(f"{broker}: {problem or 'healthy'}", err=problem is not None)
    return 1 if problem else 0


def _problem_at(url: str) -> str | None:
    """Return the problem that `GET /health` of a broker reports, or None."""
    try:
        status, body = exchange("GET", f"{url.rstrip('/')}/health", timeout_s=TIMEOUT_S)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return f"cannot be reached: {getattr(reason, 'strerror', None) or reason}"
    if status == 200:
        return None
    return f"answers {status}: {body[:500].decode('utf-8', 'replace').strip()}"


async def _problem(address: str, settings: dict[str, object]) -> str | None:
    import asyncio

    from ..protocol.errors import DecodeError

    try:
        async with asyncio.timeout(TIMEOUT_S):
            if settings.keys() == {"bootstrap_servers"}:
                answer = await _answer(address)
                if answer.results:
                    return _problem_in(answer)
            return _problem_in(await _answer_to_client(settings))
    except TimeoutError:
        return f"no answer within {TIMEOUT_S:g} s"
    except (OSError, EOFError) as error:
        return f"cannot be reached: {error}"
    except DecodeError as error:
        return f"the answer is not a response of Kafka's protocol: {error}"


def _host_and_port(address: str) -> tuple[str, int]:
    from ..client.addresses import parse_address

    try:
        return parse_address(address)
    except ValueError as error:
        raise click.BadParameter(f"{address!r} {error}", param_hint="--bootstrap") from None


async def _answer(address: str) -> DescribeLogDirsResponse:
    """Send DescribeLogDirs to a PLAINTEXT listener, and return the response.

    The client itself is not imported, so that the command is fast. All brokers support the version of the request.
    If the broker refuses the request, the response contains neither rows nor a reason.
    """
    import asyncio

    from ..protocol.framing import decode_response, encode_request
    from ..protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

    reader, writer = await asyncio.open_connection(*_host_and_port(address))
    try:
        writer.writelines(encode_request(DescribeLogDirsRequest(topics=[]), 1, 1, "oncelog-health"))
        size = int.from_bytes(await reader.readexactly(4), "big")
        _, answer = decode_response(DescribeLogDirsResponse, 1, await reader.readexactly(size))
    finally:
        writer.close()
    return answer


async def _answer_to_client(settings: dict[str, object]) -> DescribeLogDirsResponse:
    """Send DescribeLogDirs with the settings of a client, such as those for TLS and SASL, and return the response.

    Raises ConfigError, AuthenticationError, and OSError if the connection fails.
    """
    from ..client.cluster import connection_options
    from ..client.config import ClientConfig
    from ..client.connection import Connection
    from ..client.errors import NetworkError
    from ..protocol.messages.describe_log_dirs import DescribeLogDirsRequest

    config = ClientConfig.of(settings)
    try:
        connection = await Connection.open(*_host_and_port(config.bootstrap_servers[0]), connection_options(config))
        try:
            version = connection.version_of(DescribeLogDirsRequest)
            return await connection.call(DescribeLogDirsRequest(topics=[]), version)
        finally:
            connection.close()
            await connection.wait_closed()
    except NetworkError as error:
        raise OSError(error.message) from error


def _problem_in(answer: DescribeLogDirsResponse) -> str | None:
    """Return the problem that the DescribeLogDirs response reports, or None.

    Any response shows that the broker's event loop works. The response contains the errors of the data directories.
    """
    from ..protocol.errors import ErrorCode, error_code

    if answer.error_code:
        needed = ". The command needs Describe on the cluster"
        code = error_code(answer.error_code)
        return f"refuses the request: {code.name}{needed if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else ''}"
    for directory in answer.results:
        code = error_code(directory.error_code)
        if code is not ErrorCode.NONE:
            return (
                f"the broker cannot write to its data directory {directory.log_dir}: {code.name}. See the broker's log"
            )
    if answer.results:
        return None
    return "names no data directory. The broker has none that works, or the client may not Describe the cluster"
