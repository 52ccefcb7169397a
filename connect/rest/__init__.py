"""Kafka Connect's REST interface, served by a `Herder`. Needs the extra: pip install 'oncelog[connect]'.

`server` listens and serves each `connection` as HTTP/1.1, parsed by h11 and `heads`. `access` decides which requests
are admitted. `routing` passes a request (`messages`) through the middlewares `errors`, `negotiation` and `forwarding`
to its handler in `connectors`, `plugins`, `loggers` or `server`. `client` sends requests to other workers, and `tls`
has the TLS contexts of server and client. There is no web framework, because importing one takes more memory than the
worker itself.
"""
