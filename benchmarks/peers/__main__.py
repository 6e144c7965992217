"""`python -m benchmarks.peers`: the same as `python -m benchmarks peers`."""

import sys

from benchmarks.commands import app

if __name__ == "__main__":
    app(["peers", *sys.argv[1:]])
