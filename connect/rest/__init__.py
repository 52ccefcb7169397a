"""Kafka Connect's REST interface, served by a `Herder`. Needs the extra: pip install 'oncelog[connect]'.

`server` listens and serves each `connection` as HTTP/1.1, parsed by h11. `routing` finds the handler of a request
(`messages`) in `connectors`, `plugins`, `loggers` or `server`, behind `errors`, `negotiation` and `forwarding`.
`client` sends requests to other workers. `access` decides which requests are admitted, and `tls` has the contexts of
both. There is no web framework, because importing one takes more memory than the
worker itself.
"""
