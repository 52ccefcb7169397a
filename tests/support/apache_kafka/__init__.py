"""Run Apache Kafka's broker, from Maven's artifacts, as a process on 127.0.0.1.

Tests run the same cases against it, benchmarks compare oncelog with it, and its tools read oncelog's files. It needs
`java` (17+) and `mvn`. The class path is resolved once per version and kept in `.build/apache-kafka/`.

Versions before 3.3 run with a ZooKeeper process. From 3.3 on, one process is controller and broker (KRaft).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent
CACHE = ROOT / ".build" / "apache-kafka"
VERSION = "4.1.0"
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0


def free_port() -> int:
    """Return a TCP port on 127.0.0.1 that no process uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def class_path(version: str = VERSION, pom: Path = HERE / "pom.xml") -> str:
    """Return the class path of the broker and its tools, or of another pom. Maven resolves it at the first call.

    Raises RuntimeError, with Maven's output, if Maven cannot resolve it.
    """
    here = CACHE if version == VERSION else CACHE / version
    kept = here / ("classpath.txt" if pom.stem == "pom" else f"classpath-{pom.stem}.txt")
    if kept.exists() and kept.stat().st_mtime >= pom.stat().st_mtime:
        path = kept.read_text()
        if all(Path(jar).exists() for jar in path.split(os.pathsep)):
            return path
    here.mkdir(parents=True, exist_ok=True)
    if version != VERSION:
        text = pom.read_text()
        assert VERSION in text
        pom = here / "pom.xml"
        pom.write_text(text.replace(VERSION, version))
    fresh = here / f"classpath.{os.getpid()}.txt"
    done = subprocess.run(
        ["mvn", "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={fresh}"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"Maven could not resolve Apache Kafka: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    fresh.replace(kept)
    return kept.read_text()


def java(
    main_class: str, *arguments: str, timeout: float = 120, version: str = VERSION
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools (`kafka.tools.DumpLogSegments`, ...) to its end, and return the result with output."""
    return subprocess.run(
        ["java", *jvm_options("256m", quick=True), "-cp", class_path(version), main_class, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def jvm_options(heap: str, *, quick: bool = False) -> list[str]:
    """Return the options of a small JVM for the broker and its tools. It logs its start, and warnings to stderr.

    `quick`: spend little on compilation and garbage collection, for a process that runs for seconds.
    """
    return [
        f"-Xmx{heap}",
        *(("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC") if quick else ("-XX:+UseG1GC",)),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
        "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaServer=info",
    ]


class ApacheKafka:
    """A broker of Apache Kafka, with a ZooKeeper process if needed: `with ApacheKafka(directory) as kafka`.

    `properties` override the defaults below. `address` is "127.0.0.1:port". A restart keeps port and data.
    """

    def __init__(
        self,
        directory: Path,
        properties: dict[str, str] | None = None,
        heap: str = "1g",
        version: str = VERSION,
    ) -> None:
        self.directory = directory
        self.heap = heap
        self.version = version
        self.port = free_port()
        self.controller_port = free_port()
        self.properties = properties or {}
        self.process: subprocess.Popen[bytes] | None = None
        self.zookeeper: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "not started"
        return self.process.pid

    @property
    def with_zookeeper(self) -> bool:
        """Whether the version needs ZooKeeper, because it is older than KRaft."""
        major, minor, *_ = self.version.split(".")
        return (int(major), int(minor)) < (3, 3)

    def __enter__(self) -> ApacheKafka:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._stop_zookeeper()

    def start(self) -> float:
        """Start the broker. Return the seconds until it accepted requests, not counting the time for formatting."""
        config = self._write_config()
        if self.with_zookeeper:
            if self.zookeeper is None:
                self._start_zookeeper()
        elif not (self.directory / "data" / "meta.properties").exists():
            format_it = ("format", "-t", "oncelogTestClusterAAAA", "-c", str(config))
            done = java("kafka.tools.StorageTool", *format_it, version=self.version)
            if done.returncode:
                raise RuntimeError(f"formatting failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        log = self.directory / "kafka.log"
        seen = log.stat().st_size if log.exists() else 0
        begun = time.monotonic()
        started = b"[KafkaServer id=1] started" if self.with_zookeeper else b"Kafka Server started"
        self.process = self._java("kafka.Kafka", config, log, self.heap)
        while time.monotonic() - begun < START_TIMEOUT_S:
            if self.process.poll() is not None:
                break
            with log.open("rb") as text:
                text.seek(seen)
                if started in text.read():
                    return time.monotonic() - begun
            time.sleep(0.02)
        self.kill9()
        self._stop_zookeeper()
        raise RuntimeError(f"Apache Kafka did not start: {log.read_text()[-3000:]}")

    def kill9(self) -> None:
        """Kill the broker, as a crash would."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait(STOP_TIMEOUT_S)
            self.process = None

    def stop(self) -> None:
        """Stop the broker cleanly."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_S)
            self.process = None
        except subprocess.TimeoutExpired:
            self.kill9()

    def _java(self, main_class: str, config: Path, log: Path, heap: str) -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            return subprocess.Popen(
                ["java", *jvm_options(heap), "-cp", class_path(self.version), main_class, str(config)],
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _start_zookeeper(self) -> None:
        config = self.directory / "zookeeper.properties"
        config.write_text(
            f"dataDir={self.directory / 'zookeeper'}\nclientPort={self.controller_port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
        )
        log = self.directory / "zookeeper.log"
        self.zookeeper = self._java("org.apache.zookeeper.server.ZooKeeperServerMain", config, log, "128m")
        begun = time.monotonic()
        while time.monotonic() - begun < START_TIMEOUT_S and self.zookeeper.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.controller_port), 1):
                return
            time.sleep(0.05)
        self._stop_zookeeper()
        raise RuntimeError(f"ZooKeeper did not start: {log.read_text()[-3000:]}")

    def _stop_zookeeper(self) -> None:
        if self.zookeeper is not None:
            self.zookeeper.kill()
            self.zookeeper.wait(STOP_TIMEOUT_S)
            self.zookeeper = None

    def _write_config(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.with_zookeeper:
            of_version = {
                "broker.id": "1",
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
                "zookeeper.connect": f"127.0.0.1:{self.controller_port}",
                # A killed broker stays registered in ZooKeeper until its session expires.
                "zookeeper.session.timeout.ms": "2000",
            }
        else:
            of_version = {
                "process.roles": "broker,controller",
                "node.id": "1",
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
                "share.coordinator.state.topic.replication.factor": "1",
            }
        settings = {
            **of_version,
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.directory / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.properties,
        }
        path = self.directory / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path
