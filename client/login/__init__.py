"""Logs in with SASL on connections to brokers.

| module | concern |
|---|---|
| `settings` | reads the sasl.* settings of librdkafka, of Kafka's Java client and of aiokafka |
| `mechanisms` | the messages of each mechanism |
| `tokens` | the access tokens of OAUTHBEARER |
| `exchange` | the requests that carry the messages |

`client/connection.py` logs in on each new connection, and again before the session ends.
"""
