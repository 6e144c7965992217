"""`python -m benchmarks`: measure, and reproduce the paper's tables and figures."""

from benchmarks.commands import app
from fastgcn.cli import main

main(app)
