"""Grids of runs on many processes and machines, with Dask."""
