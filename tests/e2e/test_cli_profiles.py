"""Profiles of the command line: named tables of client settings, which file they are in, and which setting wins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from oncelog.cli.main import oncelog
from oncelog.client.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from support.command_line import run_command

pytestmark = pytest.mark.oncelog_only(reason="is about the command line, not about a broker")


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The profiles file of a user without any oncelog settings in the environment."""
    for name in ("BOOTSTRAP", "CLIENT_CONFIG", "PROFILE", "PROFILES"):
        monkeypatch.delenv(f"ONCELOG_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "oncelog").mkdir()
    file = tmp_path / "oncelog" / "profiles.toml"
    file.write_text('[near]\n"bootstrap.servers" = "127.0.0.1:1"\n\n[far]\nbootstrap.servers = "127.0.0.2:2"\n')
    return file


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    """Return a function that runs `oncelog topic list` with options, and returns the settings of its client."""
    seen: list[dict[str, object]] = []

    def stop(settings: dict[str, object]) -> object:
        seen.append(settings)
        raise SystemExit(0)

    monkeypatch.setattr("oncelog.client.admin.Admin", stop)

    def run(*options: str) -> object:
        result = CliRunner().invoke(oncelog, ["topic", "list", *options])
        assert result.exit_code == 0, result.output
        return seen[-1]["bootstrap_servers"]

    return run


def test_a_profile_is_a_table_of_the_users_file(profiles: Path, reached: Callable[..., object]) -> None:
    assert reached("--profile", "near") == "127.0.0.1:1"
    assert reached("--profile", "far") == "127.0.0.2:2"
    assert reached() == "127.0.0.1:9092"


def test_the_environment_names_file_and_profile(
    profiles: Path, reached: Callable[..., object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "other.toml"
    other.write_text('[near]\nbootstrap.servers = "127.0.0.3:3"\n')
    monkeypatch.setenv("ONCELOG_PROFILE", "near")
    assert reached() == "127.0.0.1:1"
    monkeypatch.setenv("ONCELOG_PROFILES", str(other))
    assert reached() == "127.0.0.3:3"


def test_without_xdg_the_file_is_in_the_home_directory(
    profiles: Path, reached: Callable[..., object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".config").mkdir()
    profiles.parent.rename(tmp_path / ".config" / "oncelog")
    assert reached("--profile", "far") == "127.0.0.2:2"


@pytest.mark.parametrize(
    ("environment", "options", "address"),
    [
        ({"PROFILE": "far"}, ["--bootstrap", "h:9"], "h:9"),
        ({"BOOTSTRAP": "h:9"}, ["--profile", "far"], "127.0.0.2:2"),
        ({"BOOTSTRAP": "h:9"}, ["--profile", "far", "--bootstrap", "i:9"], "i:9"),
        ({"BOOTSTRAP": "h:9", "PROFILE": "far"}, [], "h:9"),
        ({"PROFILE": "far"}, ["--profile", "near"], "127.0.0.1:1"),
        ({"PROFILE": "far"}, ["--client-config", "FILE"], "127.0.0.4:4"),
        ({"CLIENT_CONFIG": "FILE"}, ["--profile", "near"], "127.0.0.1:1"),
        ({"CLIENT_CONFIG": "/no/such"}, ["--profile", "near"], "127.0.0.1:1"),
        ({"BOOTSTRAP": "h:9"}, ["--client-config", "FILE"], "127.0.0.4:4"),
        ({"BOOTSTRAP": "h:9", "CLIENT_CONFIG": "FILE"}, [], "h:9"),
    ],
)
def test_the_command_line_wins_over_the_environment(
    profiles: Path,
    reached: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    options: list[str],
    address: str,
) -> None:
    file = profiles.with_name("client.properties")
    file.write_text("bootstrap.servers=127.0.0.4:4\n")
    for name, value in environment.items():
        monkeypatch.setenv(f"ONCELOG_{name}", value.replace("FILE", str(file)))
    assert reached(*(option.replace("FILE", str(file)) for option in options)) == address


@pytest.fixture
def settings_of(profiles: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that runs a command with a profile, and returns the settings of the command's client.

    The command ends before it connects.
    """
    seen: list[ClientConfig] = []

    def recording(config: type[ClientConfig]) -> Callable[[dict[str, object]], object]:
        def stop(settings: dict[str, object]) -> object:
            seen.append(config(settings))
            raise SystemExit(0)

        return stop

    async def skip(*_: object) -> None:
        pass

    monkeypatch.setattr("oncelog.client.admin.Admin", recording(AdminConfig))
    monkeypatch.setattr("oncelog.client.consumer.Consumer", recording(ConsumerConfig))
    monkeypatch.setattr("oncelog.client.producer.Producer", recording(ProducerConfig))
    monkeypatch.setattr("oncelog.cli.produce._check_topic", skip)

    def run(profile: str, *arguments: str) -> Any:
        profiles.write_text(f"[own]\n{profile}\n")
        result = CliRunner().invoke(oncelog, [*arguments, "--profile", "own"], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return seen[-1]

    return run


ALL_CLIENTS = """
linger.ms = 1000
max.request.size = 100
max.block.ms = 1
compression.type = "gzip"
acks = "1"
enable.idempotence = false
transactional.id = "billing"
transactional.group.id = "billing"
default.api.timeout.ms = 2
group.id = "billing"
isolation.level = "read_uncommitted"
auto.offset.reset = "earliest"
fetch.min.bytes = 5
"""


def test_each_client_takes_its_own_settings_of_a_profile(settings_of: Callable[..., Any]) -> None:
    producer = settings_of(ALL_CLIENTS, "produce", "orders", "--value", "v")
    assert (producer.linger_ms, producer.max_request_size, producer.max_block_ms) == (1000, 100, 1)
    assert (producer.compression_type, producer.acks, producer.enable_idempotence) == ("gzip", 1, False)
    consumer = settings_of(ALL_CLIENTS, "consume", "orders")
    assert (consumer.isolation_level, consumer.auto_offset_reset) == ("read_uncommitted", "earliest")
    assert (consumer.fetch_min_bytes, consumer.default_api_timeout_ms) == (5, 2)
    assert settings_of(ALL_CLIENTS, "topic", "list").explicit == {"bootstrap.servers", "default.api.timeout.ms"}


def test_only_options_name_a_group_or_a_transactional_id(settings_of: Callable[..., Any]) -> None:
    assert settings_of(ALL_CLIENTS, "produce", "orders", "--value", "v").transactional_id is None
    assert settings_of(ALL_CLIENTS, "produce", "orders", "--value", "v").transactional_group_id is None
    assert settings_of(ALL_CLIENTS, "consume", "orders").group_id is None
    assert settings_of(ALL_CLIENTS, "consume", "orders", "--group", "other").group_id == "other"
    assert settings_of("linger.ms = 0", "produce", "orders", "--txn", "other").transactional_id == "other"


def test_options_win_over_a_profile(settings_of: Callable[..., Any]) -> None:
    flags = ("--compression", "none", "--acks", "0")
    producer = settings_of('compression.type = "gzip"\nacks = "all"', "produce", "orders", "--value", "v", *flags)
    assert (producer.compression_type, producer.acks, producer.enable_idempotence) == ("none", 0, False)
    consume = ("consume", "orders", "--isolation", "read_committed", "--from-beginning")
    consumer = settings_of('isolation.level = "read_uncommitted"\nauto.offset.reset = "none"', *consume)
    assert (consumer.isolation_level, consumer.auto_offset_reset) == ("read_committed", "earliest")


def test_without_a_profile_commands_have_their_own_defaults(settings_of: Callable[..., Any]) -> None:
    producer = settings_of("", "produce", "orders", "--value", "v")
    assert (producer.compression_type, producer.acks, producer.max_block_ms) == ("none", -1, 10_000)
    consumer = settings_of("", "consume", "orders")
    assert (consumer.isolation_level, consumer.auto_offset_reset) == ("read_committed", "latest")


def test_a_setting_that_no_client_has_is_refused(profiles: Path) -> None:
    profiles.write_text("[near]\nlingr.ms = 1\n")
    assert "lingr.ms: is not a setting of this client; did you mean linger.ms?" in done_wrong("produce", "t")
    assert "lingr.ms: is not a setting of this client" in done_wrong("topic", "list")


def done_wrong(*arguments: str) -> str:
    done = run_command(*arguments, "--profile", "near")
    assert done.returncode == 2, done
    return done.stderr


def fails(*options: str) -> str:
    """Run a command that is used wrongly, and return what it prints on stderr."""
    done = run_command("topic", "list", *options)
    assert done.returncode == 2, done
    return done.stderr


def test_an_unknown_profile_is_refused_with_the_known_ones(profiles: Path) -> None:
    assert f"There is no profile 'fra' in {profiles}. It has near, far." in fails("--profile", "fra")


def test_a_missing_file_of_profiles_is_named(profiles: Path) -> None:
    profiles.unlink()
    assert f"The profiles file {profiles} does not exist." in fails("--profile", "near")


def test_a_missing_file_of_settings_is_named(profiles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "File '/no/such' does not exist." in fails("--client-config", "/no/such")
    monkeypatch.setenv("ONCELOG_CLIENT_CONFIG", "/no/such")
    assert "env var: 'ONCELOG_CLIENT_CONFIG'): File '/no/such' does not exist." in fails()


def test_a_file_and_a_profile_exclude_each_other(profiles: Path) -> None:
    (file := profiles.with_name("client.properties")).write_text("")
    assert "either --client-config or --profile" in fails("--profile", "near", "--client-config", str(file))


@pytest.mark.parametrize("text", ["[near", '"bootstrap.servers" = "a:1"\n'])
def test_a_file_that_is_no_file_of_profiles_is_named(profiles: Path, text: str) -> None:
    profiles.write_text(text)
    result = CliRunner().invoke(oncelog, ["topic", "list", "--profile", "near"])
    assert result.exit_code == 1
    assert str(profiles) in result.output


@pytest.mark.parametrize("name", ["sasl.password", "sasl_plain_password", "sasl.jaas.config", "ssl.key.password"])
def test_a_secret_that_others_can_read_is_warned_about(
    profiles: Path, reached: Callable[..., object], name: str
) -> None:
    with profiles.open("a") as file:
        file.write(f'"{name}" = "hidden"\n')
    for mode, warned in ((0o600, False), (0o640, True), (0o644, True)):
        profiles.chmod(mode)
        result = CliRunner().invoke(oncelog, ["topic", "list", "--profile", "near"])
        assert (f"Run: chmod 600 {profiles}" in result.stderr) is warned
        assert "hidden" not in result.output


def test_a_file_without_secrets_may_be_read_by_others(profiles: Path, reached: Callable[..., object]) -> None:
    profiles.chmod(0o644)
    assert "warning" not in CliRunner().invoke(oncelog, ["topic", "list", "--profile", "near"]).output
