"""Nodes by their own ids, from the command line or a file."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastgcn import Graph
from fastgcn.errors import FormatError, InputError, MissingFileError
from fastgcn.graph.graph import parse_nodes


def graph(node_ids: Any = None) -> Graph:
    return Graph.from_edges([0], [1], features=np.eye(3), node_ids=node_ids)


@pytest.mark.parametrize("ids", [None, np.array([7, -5, 12]), ["a", "b", "7"]])
@pytest.mark.parametrize("word", ["9" * 5000, "--5", "²", "-", "9" * 19, "1e3", "0x1"])
def test_words_that_are_no_id(ids: Any, word: str) -> None:
    with pytest.raises(InputError, match="has no node"):
        parse_nodes(graph(ids), word)


def test_integers_are_compared_as_they_are_printed() -> None:
    ids = np.array([7, -5, 2**63 - 1])
    assert parse_nodes(graph(ids), f"-5,{2**63 - 1},7").tolist() == [1, 2, 0]
    with pytest.raises(InputError, match="has no node '007'"):
        parse_nodes(graph(ids), "007")


def test_a_file_of_ids(tmp_path: Path) -> None:
    file = tmp_path / "ids.txt"
    file.write_bytes("\ufeffb\r\n\na\n".encode())
    assert parse_nodes(graph(["a", "b", "c"]), f"@{file}").tolist() == [1, 0]
    file.write_bytes(b"\xff")
    with pytest.raises(FormatError, match=r"ids.txt must be UTF-8 text"):
        parse_nodes(graph(), f"@{file}")
    with pytest.raises(MissingFileError, match="there is no file .*none with node ids"):
        parse_nodes(graph(), f"@{tmp_path / 'none'}")
    with pytest.raises(InputError, match="cannot be read: File name too long"):
        parse_nodes(graph(), "@" + "x" * 1000)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes are of Unix")
def test_a_pipe_or_a_device_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(FormatError, match="must list node ids, but it is not a regular file"):
            parse_nodes(graph(), f"@{path}")
