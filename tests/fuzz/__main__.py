"""`python -m tests.fuzz`: see the package."""

import argparse
import pathlib
import sys
import tempfile

from .fields import draw
from .run import GOOD, NAMES, Runner, summary


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--pairs", type=int, default=100, help="pairs of a field and a transformation")
    parser.add_argument("--seed", type=int, default=0, help="of the first field; the next ones follow")
    parser.add_argument("--only", help="one pair, as SEED:TRANSFORM, or one field, as SEED")
    parser.add_argument("--show", type=int, help="print the field of this seed and do nothing")
    parser.add_argument("--transforms", default=",".join(NAMES))
    parser.add_argument("--results", type=pathlib.Path, help="a file of JSON lines, added to if it exists")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for one pair")
    options = parser.parse_args()
    if options.show is not None:
        return _show(options.show)
    names = options.transforms.split(",")
    pairs = [(options.seed + i // len(names), names[i % len(names)]) for i in range(options.pairs)]
    if options.only:
        seed, _, name = options.only.partition(":")
        _show(int(seed))
        pairs = [(int(seed), name)] if name else [(int(seed), name) for name in names]
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(options.results or pathlib.Path(folder) / "results.jsonl", options.timeout)
        for line in runner.run(pairs):
            if line["verdict"] not in GOOD or options.only:
                print(line, flush=True)
        lines = [line for line in runner.read() if tuple(line["pair"]) in set(pairs)]
    print(summary(lines))
    return int(any(line["verdict"] not in GOOD for line in lines))


def _show(seed: int) -> int:
    case = draw(seed)
    print(case.source)
    print({name: value for name, value in vars(case).items() if name != "source"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
