"""Protocols, one TOML each, and the readers of the data sets they name."""
