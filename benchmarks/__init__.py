"""Measurements against peers. Run by hand, never by the tests; results lie under results/."""
