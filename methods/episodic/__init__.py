"""Methods that train through episodes: CEC, SPPR."""
