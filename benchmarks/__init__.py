"""lagrax side by side with torchdde, JiTCDDE and diffrax: `make bench`, or `python -m benchmarks` from the repository."""
