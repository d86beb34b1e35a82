"""Free-Lunch: distribution calibration with statistics of base classes."""
