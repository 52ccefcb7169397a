"""Run a broker process under attack, with a well-behaved client (the neighbour) beside the attacker, and measure both.

`async with Siege(directory) as siege:` starts both. The body attacks `siege.address`. At its end, the neighbour must
get responses again, and the broker is stopped and started again. `siege.outcome` then has the measurements.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from oncelog.auth.password_hash import PasswordHash
from oncelog.demo.processes import ChildProcess, free_port
from support.broker import BrokerProcess
from support.identity_provider import IdentityProvider, KeyServer
from support.raw_connection import RawConnection
from support.tls import Authority

TESTS = Path(__file__).resolve().parents[2]
WARM_UP_ANSWERS = 90
RECOVERY_S = 60.0
STOP_S = 60.0
"""The limit of a clean stop in seconds. An attack may leave 30,000 partitions with records, which a stop syncs."""
ADDRESS_SPACE = 6 << 30
"""The limit of the broker's memory mappings in bytes: a successful attack must not use up the machine's memory."""


@dataclass
class Outcome:
    """The effects of an attack. Times are in ms. `peak_mb` is the broker's largest resident size in 10^6 bytes."""

    attack_s: float = 0.0
    peak_mb: float = 0.0
    idle_p50: float = 0.0
    p50: float = 0.0
    p99: float = 0.0
    worst: float = 0.0
    answers: int = 0
    failures: list[str] = field(default_factory=list)
    tracebacks: int = 0
    log_mb: float = 0.0
    exit_code: int = 0
    stop_s: float = 0.0
    start_s: float = 0.0


class Siege:
    """The broker and the neighbour. `settings` are strings of the form `name=value`.

    With `sasl`, the broker has a second listener at `sasl_address`, with PLAIN and SCRAM and ten users, user-0 to
    user-9. With `tls`, it has another one at `tls_address`. With `oauth`, it has one with OAUTHBEARER at
    `sasl_address`, whose keys are those of `provider`, from the server `keys`.
    """

    def __init__(
        self,
        directory: Path,
        *settings: str,
        descriptors: int = 0,
        sasl: bool = False,
        tls: bool = False,
        oauth: bool = False,
    ) -> None:
        arguments = [argument for setting in settings for argument in ("--set", setting)]
        self.sasl_address = f"127.0.0.1:{free_port()}" if sasl or oauth else ""
        if sasl:
            arguments += self._with_sasl(directory)
        self.provider = IdentityProvider()
        self.keys = KeyServer(self.provider)
        if oauth:
            arguments += ["--listen", f"SASL_PLAINTEXT://{self.sasl_address}"]
            arguments += ["--set", "sasl.enabled.mechanisms=OAUTHBEARER"]
            arguments += ["--set", f"sasl.oauthbearer.jwks.endpoint.url={self.keys.url}"]
        self.tls_address = f"127.0.0.1:{free_port()}" if tls else ""
        if tls:
            certificate = Authority(directory).certificate("broker", "127.0.0.1")
            arguments += ["--listen", f"SSL://{self.tls_address}", "--set", f"ssl.keystore.location={certificate}"]
        self.broker = BrokerProcess(directory, "--durability", "os", *arguments)
        self.outcome = Outcome()
        self._descriptors = descriptors
        self._answers = directory / "neighbour.txt"
        self._neighbour: ChildProcess | None = None
        self._begun = 0.0

    def _with_sasl(self, directory: Path) -> list[str]:
        """Return the arguments of a listener with SASL and its users."""
        password = str(PasswordHash.of_password("secret"))
        lines = [f"user-{number}:{password}" for number in range(10)]
        users = directory / "users"
        users.write_text("\n".join(lines))
        arguments = ["--listen", f"SASL_PLAINTEXT://{self.sasl_address}", "--set", f"plain.users.location={users}"]
        arguments += ["--set", "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"]
        return arguments + [argument for line in lines for argument in ("--add-scram", line)]

    @property
    def address(self) -> str:
        return self.broker.address

    def wire(self) -> RawConnection:
        """Return a connection of the attacker."""
        return RawConnection(self.address, "attacker")

    async def __aenter__(self) -> Self:
        self.keys.__enter__()
        try:
            self.broker.start()
            resource.prlimit(self.broker.pid, resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
            if self._descriptors:
                resource.prlimit(self.broker.pid, resource.RLIMIT_NOFILE, (self._descriptors, self._descriptors))
            self._neighbour = ChildProcess(
                "support.hostile.neighbour",
                [self.address],
                self.broker.directory / "neighbour.log",
                {**os.environ, "PYTHONPATH": str(TESTS)},
                output=self._answers,
            )
            self._neighbour.spawn()
            await self._until_answered(WARM_UP_ANSWERS)
        except BaseException:
            self._end()
            raise
        self._begun = time.monotonic()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended = time.monotonic()
        try:
            if error is None:
                # The last request before the end counts until its response arrives.
                await self._until_answered(1, since=ended)
                self._measure(ended)
                await asyncio.to_thread(self._restart)
        finally:
            self._end()

    def _end(self) -> None:
        if self._neighbour is not None:
            self._neighbour.kill9()
        self.broker.kill9()
        self.keys.__exit__(None, None, None)
        shutil.rmtree(self.broker.data_dir, ignore_errors=True)  # gigabytes, after some attacks

    def _rows(self) -> list[tuple[str, float, str]]:
        lines = [line.split(" ", 2) for line in self._answers.read_text().split("\n")[:-1]]
        return [(name, float(begun), rest) for name, begun, rest in lines]

    async def _until_answered(self, count: int, since: float = 0.0) -> None:
        async with asyncio.timeout(RECOVERY_S):
            while sum(name != "failed" and begun >= since for name, begun, _ in self._rows()) < count:
                if not self.broker.running or self._neighbour is None or not self._neighbour.running:
                    raise AssertionError(f"the broker or its neighbour died: {self.broker.last_words()}")
                await asyncio.sleep(0.02)

    def _measure(self, ended: float) -> None:
        outcome = self.outcome
        outcome.attack_s = ended - self._begun
        rows = self._rows()
        idle = [float(rest) * 1e3 for name, begun, rest in rows if name != "failed" and begun < self._begun]
        outcome.idle_p50 = statistics.median(idle[len(idle) // 3 :])
        during = [
            row for row in rows if row[1] < ended and (row[0] == "failed" or row[1] + float(row[2]) > self._begun)
        ]
        outcome.failures = [rest for name, begun, rest in during if name == "failed" and begun >= self._begun - 1]
        took = sorted(float(rest) * 1e3 for name, _, rest in during if name != "failed")
        outcome.answers = len(took)
        if took:
            outcome.p50, outcome.p99, outcome.worst = took[len(took) // 2], took[len(took) * 99 // 100], took[-1]
        status = Path(f"/proc/{self.broker.pid}/status").read_text()
        outcome.peak_mb = int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6

    def _restart(self) -> None:
        """Stop the broker, which must end by itself, and start it again."""
        begun = time.monotonic()
        self.outcome.exit_code = self.broker.terminate(STOP_S)
        self.outcome.stop_s = time.monotonic() - begun
        self.broker.start()
        self.outcome.start_s = self.broker.start_s
        log = self.broker.log.read_bytes()
        self.outcome.log_mb = len(log) / 1e6
        self.outcome.tracebacks = log.count(b"Traceback")
