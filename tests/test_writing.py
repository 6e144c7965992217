"""Folders and files are replaced as a whole: killed at every step, and on a full disk."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fastgcn.data.shards import shard
from fastgcn.data.store import StoreWriter, open_store, save
from fastgcn.errors import BusyError, InputError, WriteError
from fastgcn.writing import FolderWriter, recover, replace_file, write_bytes
from tests.communities import communities
from tests.small_disk import small_disk

# Replaces a folder again and again, in a fork that is killed at the first step, at the second, ...
# until one comes to its end. A step is a call that changes the disk. For each, it answers what the
# next command reads, and what lies in the parent folder after the next command that writes.
KILLER = '''
import json, os, shutil, signal, sys, traceback
from pathlib import Path

from fastgcn.data.shards import open_parts, shard
from fastgcn.data.store import open_store, save
from tests.communities import communities
from tests.small_disk import small_disk

OLD, NEW = communities(seed=1, name="old"), communities(seed=2, name="new")
STEPS = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")
STORES = {
    "store": (lambda graph, out: save(graph, out, force=True),
              lambda out: open_store(out, verify=True).name),
    "shards": (lambda graph, out: shard(graph, 2, out, force=True),
               lambda out: {open_parts(out, rank, 2).outline.name for rank in (0, 1)}.pop()),
}
write, read = STORES[sys.argv[1]]
root = Path(sys.argv[2])


def die_at(step):
    count = 0
    def met(event, arguments):
        nonlocal count
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
        if event in STEPS or writes:
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(met)
    os.fsync = lambda _: met("os.remove", ())


def forked(work):
    """The exit status of `work`, and what it returns."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(theirs, json.dumps(work()).encode())
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(theirs)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with os.fdopen(ours) as file:
        text = file.read()
    return status, text and json.loads(text)


def replaced(out, step):
    die_at(step)
    write(NEW, out)


os.fsync = lambda _: None  # a kill loses nothing that the system has
step, status = 0, -signal.SIGKILL
while status == -signal.SIGKILL:
    step += 1
    shutil.rmtree(root, ignore_errors=True)
    out = root / "out"
    write(OLD, out)
    status, _ = forked(lambda: replaced(out, step))
    found = forked(lambda: [read(out), str(write(NEW, out)), read(out)])
    print(json.dumps([status, *found, sorted(os.listdir(root))]), flush=True)
'''


@pytest.mark.parametrize("kind", ["store", "shards"])
def test_a_folder_survives_a_kill_at_every_step(kind: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLER, kind, str(tmp_path / "root")],
        env=_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    assert [status for status, *_ in steps] == [-signal.SIGKILL] * (len(steps) - 1) + [0]
    assert len(steps) > 20
    seen = []
    for number, (_, failed, found, left) in enumerate(steps):
        assert failed == 0, (number, done.stderr)
        first, _, last = found
        seen.append(first)
        assert last == "new"
        assert left == ["out"], number
    assert seen == sorted(seen, reverse=True), "the old one, and from some step on the new one"
    assert set(seen) == {"old", "new"}


def _environment() -> dict[str, str]:
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    return os.environ | {"PYTHONPATH": paths}


def test_what_a_kill_left_is_cleared_by_the_next_writer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastgcn.progress._plain", True)
    (tmp_path / ".s.partial").mkdir()
    (tmp_path / ".s.partial" / "features.npy").write_bytes(b"half")
    (tmp_path / ".s.lock").write_text('{"pid": 1, "host": "gone"}')
    save(communities(), tmp_path / "s")
    assert [file.name for file in tmp_path.iterdir()] == ["s"]
    assert "Removed what an interrupted command had left of s\n" in capfd.readouterr().err


def test_what_a_kill_left_of_a_file_is_written_over(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastgcn.progress._plain", True)
    (tmp_path / ".rows.csv.partial").write_text("much more than the new content")
    write_bytes(tmp_path / "rows.csv", b"new")
    assert (tmp_path / "rows.csv").read_bytes() == b"new"
    assert [file.name for file in tmp_path.iterdir()] == ["rows.csv"]
    assert "Removed what an interrupted command had left of rows.csv\n" in capfd.readouterr().err


def test_a_folder_moved_aside_is_put_back_for_readers(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastgcn.progress._plain", True)
    save(communities(), tmp_path / "s")
    (tmp_path / "s").rename(tmp_path / ".s.replaced")
    assert open_store(tmp_path / "s").name == "communities"
    assert [file.name for file in tmp_path.iterdir()] == ["s"]
    assert "Restored" in capfd.readouterr().err


def test_nothing_is_put_back_under_a_writer(tmp_path: Path) -> None:
    save(communities(), tmp_path / "s")
    with StoreWriter(tmp_path / "s", force=True):
        (tmp_path / "s").rename(tmp_path / ".s.replaced")
        recover(tmp_path / "s")
        assert not (tmp_path / "s").exists()
    assert open_store(tmp_path / "s").name == "communities", "a writer that fails puts it back"


def test_two_writers_of_a_folder(tmp_path: Path) -> None:
    with (
        StoreWriter(tmp_path / "s"),
        pytest.raises(BusyError, match=f"s is being written by process {os.getpid()} on "),
    ):
        StoreWriter(tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def test_two_writers_of_a_file(tmp_path: Path) -> None:
    def write(temporary: Path) -> None:
        temporary.write_text("first")
        with pytest.raises(BusyError, match="rows is being written by another process"):
            write_bytes(tmp_path / "rows", b"second")

    replace_file(tmp_path / "rows", write)
    assert (tmp_path / "rows").read_text() == "first"
    assert [file.name for file in tmp_path.iterdir()] == ["rows"]


def test_a_link_to_a_store_stays_a_link(tmp_path: Path) -> None:
    save(communities(), tmp_path / "s")
    (tmp_path / "link").symlink_to("s")
    save(communities(name="new"), tmp_path / "link", force=True)
    assert (tmp_path / "link").is_symlink()
    assert open_store(tmp_path / "s").name == "new"


@pytest.mark.parametrize("place", ["/", "file/store"])
def test_places_that_no_folder_can_have(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be"):
        FolderWriter(tmp_path / place, force=True, what="mine", replaceable=lambda _: True)


def test_a_full_disk_keeps_the_old_folder(tmp_path: Path) -> None:
    shard(communities(), 2, tmp_path / "parts")
    before = sorted(tmp_path.rglob("*"))
    with small_disk(1000), pytest.raises(WriteError, match=r"could not write .*parts: File too l"):
        shard(communities(n=600), 2, tmp_path / "parts", force=True)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("old")
    with small_disk(1000), pytest.raises(WriteError, match=r"could not write .*rows: File too l"):
        replace_file(tmp_path / "rows", lambda path: path.write_bytes(bytes(2000)))
    assert (tmp_path / "rows").read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["rows"]
