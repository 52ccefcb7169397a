"""Predicates, which decide to which records a transform applies."""
