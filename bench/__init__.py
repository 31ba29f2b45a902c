"""Side-by-side measurements, printed as ratios. Not a test: `make bench`, or `python -m bench`."""
