"""Base training: the loop, backbones, weights, networks, features."""
