"""`python -m benchmarks`: measure, and reproduce the paper's tables and figures."""

from benchmarks.commands import app
from fastgcn.cli import main

if __name__ == "__main__":  # not in the processes that a measurement starts
    main(app)
