"""Generated and real features in one plane."""
