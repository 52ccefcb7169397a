"""Addresses of brokers: what is one, and what the refusal of another says."""

from __future__ import annotations

import pytest
from oncelog import Admin, Consumer, Producer
from oncelog.client.addresses import parse_address
from oncelog.client.errors import ConfigError

RIGHT = [
    ("localhost:9092", ("localhost", 9092)),
    ("127.0.0.1:1", ("127.0.0.1", 1)),
    ("broker-1.example.com:65535", ("broker-1.example.com", 65535)),
    ("my_broker:9092", ("my_broker", 9092)),
    ("[::1]:9092", ("::1", 9092)),
    ("[fe80::1%eth0]:9092", ("fe80::1%eth0", 9092)),
]

WRONG = [
    ("kafka://localhost:9092", "localhost:9092"),
    ("PLAINTEXT://localhost:9092", "leave out PLAINTEXT://: give localhost:9092"),
    ("http://localhost:9092/", "leave out http://"),
    ("localhost", "the port is missing: give localhost:9092"),
    ("::1:9092", "brackets"),
    (":9092", "host:port"),
    ("localhost:", "host:port"),
    ("localhost:0", "the port must be from 1 to 65535"),
    ("localhost:70000", "the port must be from 1 to 65535"),
    ("localhost:٩٠٩٢", "host:port"),
    ("localhost:9092/topic", "host:port"),
    ("user@localhost:9092", "host:port"),
    ("local host:9092", "host:port"),
    ("nonsense:port", "host:port"),
]


@pytest.mark.parametrize(("text", "address"), RIGHT)
def test_an_address_is_host_and_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_what_is_no_address_is_refused_with_the_right_form(text: str, words: str) -> None:
    with pytest.raises(ValueError, match="is not host:port") as refused:
        parse_address(text)
    assert words in str(refused.value)


@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
def test_every_client_refuses_it_when_it_is_made(client: type) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers: 'kafka://b:9092' is not host:port: .* give b:9092"):
        client(bootstrap_servers="a:9092,kafka://b:9092")
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        client(bootstrap_servers=[("localhost", 9092)])
    with pytest.raises(ConfigError, match=r"bootstrap\.servers: is empty"):
        client(bootstrap_servers=" , ")
