"""`python -m tests.fuzz TARGET --cases N --seed S --jobs J`: run cases, group what was found."""

import argparse
import contextlib
import os
import sys
import tempfile
import traceback
from pathlib import Path

# Before any of the libraries is loaded: one thread each, memory that counts, a folder in memory.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
if Path("/dev/shm").is_dir():
    os.environ["TMPDIR"] = "/dev/shm"

from tests.fuzz.case import save_found
from tests.fuzz.corpus import corpus
from tests.fuzz.harness import Mutants, Result, finding, fuzz, replay
from tests.fuzz.targets import TARGETS, prepare

FOUND = Path(__file__).parent / "found"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "targets",
        nargs="+",
        help=f"all, or some of {', '.join(TARGETS)}; found: cases that were kept",
    )
    parser.add_argument("--cases", type=int, default=2000, help="cases of each target")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first case")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--show", type=int, metavar="N", help="run one case here, with a traceback")
    parser.add_argument("--keep", metavar="NAME", help="keep the case of --show in found/NAME.zip")
    given = parser.parse_args()
    known = [*TARGETS, "found"]
    targets = known if given.targets == ["all"] else given.targets
    if unknown := [target for target in targets if target not in known]:
        parser.error(f"there is no target {unknown[0]}")
    if given.show is not None:
        return show(targets[0], given.show, given.keep)
    failed = False
    for target in targets:
        if target == "found":
            files = sorted(FOUND.glob("*.zip"))
            result = replay(files)
            for each in result.findings:
                print(f"  {each.seed} is {files[each.seed].name}")
        else:
            result = fuzz(target, given.cases, given.seed, given.jobs)
        print_result(result)
        failed = failed or bool(result.findings)
    return int(failed)


def print_result(result: Result) -> None:
    rate = result.cases / max(result.seconds, 1e-9)
    print(
        f"{result.target}: {result.cases:,} cases from {result.first}, "
        f"{result.answers:,} answered, {result.seconds:.1f} s, {rate:,.0f} cases/s, "
        f"{len(result.findings)} findings",
        flush=True,
    )
    for (what, frame), found in result.groups().items():
        seeds = ", ".join(str(each.seed) for each in found[:3])
        print(f"  {len(found):6} {what} in {frame}: {found[0].message[:110]} [{seeds}]", flush=True)


def show(target: str, seed: int, keep: str | None) -> int:
    """Run one case in this process."""
    prepare()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        bench = Mutants(target, Path(folder) / "bench", corpus(target))
        case = bench.case(seed)
        name, action = case.placed.folder.name, case.action.__name__
        print(f"input {name}, action {action}")
        for file, content in case.changes.items():
            print(f"  {file}: {content if not isinstance(content, bytes) else content[:1500]!r}")
        if keep is not None:
            about = {"target": target, "action": action, "input": name, "seed": seed, "rng": keep}
            save_found(FOUND / f"{keep}.zip", case.placed.tree, case.changes, about)
        sys.stdout.flush()
        try:
            with contextlib.chdir(folder):
                print("answered" if case.run(bench.out) else "refused")
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            print(finding(target, bench, seed, error))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
