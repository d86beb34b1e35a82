"""Ordinary few-shot episodes on the base session's network."""
