"""Representations × methods."""
