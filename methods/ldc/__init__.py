"""LDC: learnable distribution calibration."""
