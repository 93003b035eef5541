"""Task sets, and the one place where replies become answers and verdicts."""
