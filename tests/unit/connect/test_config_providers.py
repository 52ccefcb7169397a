"""Variables in the settings of workers and connectors, and the config providers that have their values (KIP-297)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from oncelog.connect.errors import ConfigValueError
from oncelog.connect.settings.providers import ConfigProviders
from oncelog.connect.settings.secrets import Secrets
from oncelog.connect.settings.worker import STANDALONE, WorkerConfig

JAVA = "org.apache.kafka.common.config.provider."
WORKER = {"key.converter": "StringConverter", "value.converter": "StringConverter"}


def provider(kind: str, **parameters: str) -> ConfigProviders:
    """Return the provider `p` of a class."""
    named = {f"config.providers.p.param.{name.replace('_', '.')}": value for name, value in parameters.items()}
    return ConfigProviders({"config.providers": "p", "config.providers.p.class": JAVA + kind, **named})


def value(providers: ConfigProviders, text: str) -> str:
    return providers.resolved({"a": text})["a"]


def test_a_variable_of_a_file_is_a_key_of_its_properties(tmp_path: Path) -> None:
    path = tmp_path / "db.properties"
    path.write_text("user = alice\npass\\:word=a\\u00e9\\n${p:x:y}\nempty=\n")
    files = provider("FileConfigProvider")
    assert value(files, f"${{p:{path}:user}}") == "alice"
    assert value(files, f"jdbc:${{p:{path}:user}}:${{p:{path}:empty}}@${{p:{path}:user}}") == "jdbc:alice:@alice"
    assert value(files, f"${{p:{path}:pass:word}}") == "aé\n${p:x:y}"
    path.write_text("user=bob")
    assert value(files, f"${{p:{path}:user}}") == "bob"


def test_a_variable_of_a_directory_is_a_file_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(b"a\r\nb\n")
    (tmp_path / "inner").mkdir()
    directories = provider("DirectoryConfigProvider")
    assert value(directories, f"${{p:{tmp_path}:password}}") == "a\r\nb\n"
    for name in ("inner", "..", f"../{tmp_path.name}/password", "missing"):
        with pytest.raises(ConfigValueError, match="has no file"):
            value(directories, f"${{p:{tmp_path}:{name}}}")


def test_a_variable_of_the_environment_has_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "secret")
    environment = provider("EnvVarConfigProvider", allowlist_pattern="DB_.*")
    assert value(environment, "${p:DB_PASSWORD}") == "secret"
    with pytest.raises(ConfigValueError, match="has no path"):
        value(environment, "${p:path:DB_PASSWORD}")
    with pytest.raises(ConfigValueError, match=r"param\.allowlist\.pattern does not allow the variable HOME"):
        value(environment, "${p:HOME}")
    with pytest.raises(ConfigValueError, match="has no variable DB_MISSING"):
        value(environment, "${p:DB_MISSING}")


@pytest.mark.parametrize("text", ["${topic}", "${other:path:key}", "$p:a:b", "${p:a", "${:a}", "plain"])
def test_other_text_stays_as_it_is(text: str) -> None:
    files = provider("FileConfigProvider")
    assert value(files, text) == text
    assert not files.has_variable(text)


@pytest.mark.parametrize("kind", ["FileConfigProvider", "DirectoryConfigProvider"])
def test_only_allowed_paths_are_read(tmp_path: Path, kind: str) -> None:
    for name in ("allowed", "allowed-not"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "key").write_text("key=k")
    inside, outside = tmp_path / "allowed", tmp_path / "allowed-not"
    part = "/key" if kind == "FileConfigProvider" else ""
    files = provider(kind, allowed_paths=f"{tmp_path / 'allowed'}, /usr")
    assert "k" in value(files, f"${{p:{inside}{part}:key}}")
    for path in (f"{outside}{part}", f"{inside}/../allowed-not{part}", f"allowed{part}"):
        with pytest.raises(ConfigValueError, match=r"param\.allowed\.paths does not allow the path"):
            value(files, f"${{p:{path}:key}}")


@pytest.mark.parametrize("content", [None, b"secret", b"key=\xff secret"])
def test_a_value_that_cannot_be_read_is_refused_without_the_content(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    variable = f"${{p:{path}:key}}"
    with pytest.raises(ConfigValueError, match=re.escape(f"Invalid value {variable} for configuration a: ")) as refused:
        value(provider("FileConfigProvider"), variable)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("config.providers.p.class", ""),
        ("config.providers.p.class", "com.example.VaultConfigProvider"),
        ("config.providers.p.param.allowed.paths", "relative"),
        ("config.providers.p.param.allowed.paths", " "),
        ("config.providers.p.param.allowed.paths", "/usr,"),
        ("config.providers.p.param.allowed.paths", "/does/not/exist"),
    ],
)
def test_a_wrong_provider_is_refused(name: str, given: str) -> None:
    settings = {"config.providers": "p", "config.providers.p.class": "FileConfigProvider", name: given}
    with pytest.raises(ConfigValueError, match=f"configuration {re.escape(name)}: "):
        ConfigProviders(settings)


def test_an_allowlist_that_is_no_pattern_is_refused() -> None:
    with pytest.raises(ConfigValueError, match=r"param\.allowlist\.pattern: is not a regular expression"):
        provider("EnvVarConfigProvider", allowlist_pattern="(")


def test_a_worker_uses_the_values_of_the_variables_in_its_settings(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("servers=a:1,b:2\nid=w")
    settings = {
        **WORKER,
        "config.providers": "file",
        "config.providers.file.class": "FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(tmp_path),
        "config.providers.file.param.other": "x",
        "bootstrap.servers": f"${{file:{tmp_path}/f:servers}}",
        "producer.client.id": f"${{file:{tmp_path}/f:id}}",
    }
    config = WorkerConfig(STANDALONE, settings)
    assert config["bootstrap.servers"] == ["a:1", "b:2"]
    assert config.client("producer")["client.id"] == "w"
    assert config.unknown == ["config.providers.file.param.other"]


def test_the_settings_of_a_task_have_the_variables_of_its_connector() -> None:
    environment = provider("EnvVarConfigProvider")
    given = {"password": "${p:PASSWORD}", "topic": "${topic}", "unused": "${p:X}"}
    task = {"password": "secret", "topic": "changed", "task": "1"}
    assert environment.with_variables(task, given) == {"password": "${p:PASSWORD}", "topic": "changed", "task": "1"}


def test_a_short_value_is_hidden_only_as_a_whole_word() -> None:
    secrets = Secrets()
    secrets.add("me", "${p:USER}")
    secrets.add("", "${p:EMPTY}")
    secrets.add("${p", "${p:ODD}")
    assert secrets.hidden("me:some name of ${p:USER}") == "${p:USER}:some name of ${p:USER}"
    assert Secrets().hidden("me") == "me"
