"""Ridge regression on expanded features: RanPAC, GKEAL."""
