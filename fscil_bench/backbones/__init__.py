"""Backbones: one file each, and one for each library of networks."""
