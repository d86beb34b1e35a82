"""What reports are made of: results as a frame, measures, statistics, tables, figures."""
