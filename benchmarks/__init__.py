"""One script per claim. Each prints ratios of two things run side by side."""
