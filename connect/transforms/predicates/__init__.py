"""Predicates, which say to which records a transform applies."""
