"""Benchmarks, one script per claim; each prints ratios of alternatives timed in turns."""
