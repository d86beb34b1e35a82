"""Ordinary few-shot classification."""
