"""Divide large work into slices, so that other clients are served in between."""
