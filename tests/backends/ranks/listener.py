"""A rank that joins, and prints where it and the process that started it listen."""

import json
import os

import psutil

from fastgcn.backends.ranks.process_group import ProcessGroup
from fastgcn.errors import FastGCNError


def listening(process: psutil.Process) -> list[str]:
    connections = process.net_connections(kind="tcp")
    return [each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN]


def main() -> None:
    try:
        group = ProcessGroup.join()
    except FastGCNError as error:
        print(json.dumps({"error": str(error)}))
        return
    numbers = group.host_comm.gather_counts(7 + group.rank, "numbers")
    found = {"rank": listening(psutil.Process()), "numbers": numbers}
    if "TORCHELASTIC_RUN_ID" in os.environ:
        found["agent"] = listening(psutil.Process(os.getppid()))
    group.host_comm.gather_counts(0, "the end")
    print(json.dumps(found), flush=True)
    group.close()


if __name__ == "__main__":
    main()
