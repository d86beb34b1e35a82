"""Base training: the loop, backbones, weights, features."""
