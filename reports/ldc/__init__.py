"""The studies of the LDC paper: what its parts add, cost and claim, on stored runs."""
