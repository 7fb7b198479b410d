"""Programs to run and read: `python -m examples.demo`."""
