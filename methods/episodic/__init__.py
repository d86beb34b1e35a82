"""Methods that train through episodes: CEC, LIMIT, SPPR."""
