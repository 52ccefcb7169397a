"""What the handlers of different APIs share: their context, checks of requests, and parts of responses."""
