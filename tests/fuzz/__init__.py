"""Random vector fields through every transformation, with kernels and without: nothing may abort, hang or differ.

`python -m tests.fuzz --pairs 2000 --seed 0` draws a field from each seed and runs it, in child processes, through all of
`transforms.NAMES`; `--only 17:grad` runs one pair again and shows its field.
"""
