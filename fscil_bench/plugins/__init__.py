"""Plug-ins: how they are found, named and told apart."""
