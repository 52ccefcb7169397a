"""Profiles of the command line: named tables of client settings, which file they are in, and which setting wins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from oncelog.cli.main import oncelog
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
