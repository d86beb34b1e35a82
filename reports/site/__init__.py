"""The results as a website: leaderboard, curves, reports and figures, a page for each run."""
