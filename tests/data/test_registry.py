"""Where data sets are looked for, fetched from and made."""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from fastgcn.data import download, registry
from fastgcn.data.generate import PRESETS, GenerateConfig
from fastgcn.data.store import open_store, save
from fastgcn.errors import DownloadError, InputError, MissingFileError
from fastgcn.graph.graph import Graph

PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
FILES = [f"ind.tiny.{part}" for part in PARTS]


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data folder, an empty cache, and no server to fetch from."""
    monkeypatch.delenv("FASTGCN_DATA", raising=False)
    monkeypatch.setenv("FASTGCN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FASTGCN_MIRROR", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "_BACKOFF", 0.0)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that `FASTGCN_DATA` points at."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("FASTGCN_DATA", str(folder))
    return folder


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], list[str]]]:
    """Starts the mirror over a folder and returns the list of what it is asked for."""
    running: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start(folder: Path) -> list[str]:
        asked: list[str] = []

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                asked.append(self.path.lstrip("/"))

        httpd = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.append((httpd, thread))
        monkeypatch.setenv("FASTGCN_MIRROR", f"http://127.0.0.1:{httpd.server_port}/")
        return asked

    yield start
    for httpd, thread in running:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the eight files of a data set `tiny`, known to the registry."""
    folder = tmp_path / "published"
    folder.mkdir()
    ids = {}
    for file in FILES:
        content = f"content of {file}".encode()
        (folder / file).write_bytes(content)
        ids[file] = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    monkeypatch.setitem(registry.PLANETOID, "tiny", ids)
    return folder


def tiny_graph() -> Graph:
    return Graph.from_edges([0], [1], features=np.eye(2), labels=[0, 1])


def test_every_planetoid_data_set_has_eight_files_of_its_own() -> None:
    ids = [blob for files in registry.PLANETOID.values() for blob in files.values()]
    assert len(set(ids)) == 24
    assert all(len(blob) == 40 for blob in ids)
    for name, files in registry.PLANETOID.items():
        assert {file.replace(name, "tiny") for file in files} == set(FILES)


def test_the_sizes_are_those_of_the_published_files(real_data: Path) -> None:
    """But for one file, of which this copy is another pickle of the same matrix."""
    names = {file for files in registry.PLANETOID.values() for file in files}
    assert names - set(registry.PLANETOID_SIZES) == {"ind.pubmed.allx"}
    for file, size in registry.PLANETOID_SIZES.items():
        assert (real_data / "planetoid" / file).stat().st_size == size


def test_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert registry.cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("FASTGCN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert registry.cache_folder() == tmp_path / "xdg" / "fastgcn"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert registry.cache_folder() == tmp_path / ".cache" / "fastgcn"


def test_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert registry.data_folder() is None
    monkeypatch.setenv("FASTGCN_DATA", str(tmp_path))
    assert registry.data_folder() == tmp_path
    monkeypatch.setenv("FASTGCN_DATA", str(tmp_path / "absent"))
    with pytest.raises(MissingFileError, match="FASTGCN_DATA must name a folder.*absent"):
        registry.data_folder()


@pytest.mark.parametrize("under", ["planetoid", "tiny", "."])
def test_planetoid_uses_local_copies_as_they_are(data: Path, published: Path, under: str) -> None:
    (data / under).mkdir(exist_ok=True)
    for file in published.iterdir():
        (data / under / file.name).write_text("edited by hand")
    assert registry.fetch_planetoid("tiny") == data / under


def test_planetoid_downloads_what_is_missing_once(
    published: Path, serve: Callable[[Path], list[str]]
) -> None:
    asked = serve(published)
    folder = registry.fetch_planetoid("tiny")
    assert folder == registry.cache_folder() / "planetoid"
    assert {file.name: file.read_text() for file in folder.iterdir()} == {
        file: f"content of {file}" for file in FILES
    }
    assert asked == FILES
    (folder / FILES[3]).unlink()
    assert registry.fetch_planetoid("tiny") == folder
    assert asked == [*FILES, FILES[3]]


def test_incomplete_local_copy_is_not_used(
    data: Path, published: Path, serve: Callable[[Path], list[str]]
) -> None:
    serve(published)
    (data / "planetoid").mkdir()
    (data / "planetoid" / FILES[0]).write_text("alone")
    assert registry.fetch_planetoid("tiny") == registry.cache_folder() / "planetoid"


def test_damaged_download_is_refused(published: Path, serve: Callable[[Path], list[str]]) -> None:
    serve(published)
    (published / "ind.tiny.graph").write_text("damaged")
    with pytest.raises(DownloadError, match=r"ind\.tiny\.graph.*damaged"):
        registry.fetch_planetoid("tiny")
    cached = {file.name for file in (registry.cache_folder() / "planetoid").iterdir()}
    assert cached == set(FILES[: FILES.index("ind.tiny.graph")])


def test_no_server(published: Path) -> None:
    assert published.is_dir()
    with pytest.raises(DownloadError, match=r"ind\.tiny\.x from http://127\.0\.0\.1:9/ind"):
        registry.fetch_planetoid("tiny")


def test_unknown_names() -> None:
    with pytest.raises(InputError, match=r"got 'corra'; did you mean 'cora'\?"):
        registry.fetch_planetoid("corra")
    with pytest.raises(InputError, match=r"got 'redit-sim'; did you mean 'reddit-sim'\?"):
        registry.fetch_generated("redit-sim")


@pytest.mark.parametrize("name", ["cora", "citeseer"])
def test_published_files_have_the_listed_ids(
    real_data: Path, serve: Callable[[Path], list[str]], name: str
) -> None:
    serve(real_data / "planetoid")
    folder = registry.fetch_planetoid(name)
    assert sorted(file.name for file in folder.iterdir()) == sorted(registry.PLANETOID[name])


@pytest.fixture
def small_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    config = GenerateConfig(name="reddit-sim", nodes=200, edges=600, features=4, classes=3)
    monkeypatch.setitem(PRESETS, "reddit-sim", config)


@pytest.mark.usefixtures("small_preset")
def test_generated_once_into_the_cache(capsys: pytest.CaptureFixture[str]) -> None:
    store = registry.fetch_generated("reddit-sim")
    assert store == registry.cache_folder() / "reddit-sim"
    assert open_store(store).n_nodes == 200
    assert str(store) in capsys.readouterr().err
    assert registry.fetch_generated("reddit-sim") == store
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("small_preset")
def test_a_store_is_generated_once_for_all_who_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def slow(_: GenerateConfig, out: Path) -> None:
        time.sleep(0.1)
        save(tiny_graph(), out)
        made.append(out)

    monkeypatch.setattr("fastgcn.data.generate.generate", slow)
    with ThreadPoolExecutor(3) as pool:  # locks count threads as they count processes
        stores = [*pool.map(registry.fetch_generated, ["reddit-sim"] * 3)]
    assert made == [stores[0]]
    assert [open_store(store).n_nodes for store in stores] == [2, 2, 2]
    assert [file.name for file in stores[0].parent.iterdir()] == ["reddit-sim"]


@pytest.mark.usefixtures("small_preset")
def test_generator_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: GenerateConfig, out: Path) -> None:
        raise InputError(f"no space for {out}")

    monkeypatch.setattr("fastgcn.data.generate.generate", failing)
    with pytest.raises(InputError, match="no space for"):
        registry.fetch_generated("reddit-sim")


def test_generated_store_in_the_data_folder_comes_first(data: Path) -> None:
    save(tiny_graph(), data / "products-sim")
    assert registry.fetch_generated("products-sim") == data / "products-sim"


def test_find_local_looks_in_order(data: Path) -> None:
    assert registry.find_local("my-graph") is None
    places = [
        registry.cache_folder() / "my-graph",
        data / "my_graph.npz",
        data / "npz" / "my_graph",
        data / "my_graph",
    ]
    for place in places:
        if place.suffix == ".npz":
            place.write_bytes(b"")
        else:
            save(tiny_graph(), place)
        assert registry.find_local("my-graph") == place


def test_find_local_finds_only_data_sets_by_plain_names(data: Path) -> None:
    for folder in ("planetoid", "npz/inner", ".hidden", "cache-like"):
        (data / folder).mkdir(parents=True)
        (data / folder / "file").write_text("x")
    (registry.cache_folder() / "cache-like-too").mkdir(parents=True)
    (data / "empty").mkdir()
    (data / "nested" / "raw").mkdir(parents=True)  # as OGB's are
    assert registry.find_local("cache-like") == data / "cache-like"
    assert registry.find_local("nested") == data / "nested"
    names = ("planetoid", "npz", "npz/inner", "..", ".", "", ".hidden", "cache-like-too", "empty")
    for name in (*names, str(data / "cache-like")):
        assert registry.find_local(name) is None, name


def test_known_names(data: Path) -> None:
    built_in = ["digits", "cora", "citeseer", "pubmed"]
    built_in += ["reddit-sim", "two-hop-sim", "products-sim"]
    assert registry.known_names() == built_in
    save(tiny_graph(), data / "zebra")
    save(tiny_graph(), data / "npz" / "amazon_photo")
    save(tiny_graph(), data / "cora")
    save(tiny_graph(), registry.cache_folder() / "reddit-sim")
    (data / "alone.npz").write_bytes(b"")
    (data / "README.md").write_text("about")
    assert registry.known_names() == [*built_in, "alone", "amazon_photo", "zebra"]
    for name in ("alone", "amazon_photo", "zebra"):
        assert registry.find_local(name) is not None
