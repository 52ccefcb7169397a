"""Authenticate clients: TLS, SASL and delegation tokens. Each module names the Kafka settings that it implements."""
