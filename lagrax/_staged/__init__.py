"""The loop for all other delays: what a stage sees of the past is looked up while the step is taken."""
