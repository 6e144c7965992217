"""The figures of the code base: chains of imports, their direction, and the sizes of folders."""

import doctest
from pathlib import Path

from benchmarks import structure


def test_examples() -> None:
    assert doctest.testmod(structure).failed == 0


def test_a_cycle_counts_with_all_its_modules() -> None:
    imports = {"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": []}
    assert structure.longest_chain(imports) == ["a", "b", "c", "d"]
    assert structure.components(imports) == [["a"], ["b", "c"], ["d"]]


def test_imports_are_those_that_run(tmp_path: Path) -> None:
    package = tmp_path / "house"
    (package / "room").mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "room" / "__init__.py").write_text(
        "import os\nimport house.door\n", encoding="utf-8"
    )
    (package / "room" / "chair.py").write_text("class Chair: ...\n", encoding="utf-8")
    (package / "door.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from house.room import chair\n"
        "def enter():\n    from house.room.chair import Chair\n    from house import room\n",
        encoding="utf-8",
    )
    assert structure.read_imports(package) == {
        "house": set(),
        "house.room": {"house.door"},
        "house.room.chair": set(),
        "house.door": {"house.room.chair", "house.room"},
    }


def test_the_front_door_is_above_every_room() -> None:
    imports = {"fastgcn.cli.train": ["fastgcn", "fastgcn.graph"], "fastgcn.graph": []}
    assert structure.forward_imports(imports, [["cli"], ["graph"]]) == [
        ("fastgcn.cli.train", "fastgcn")
    ]


def test_size_and_names(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "random.py").write_text("class A:\n    pass\n", encoding="utf-8")
    (tmp_path / "inner" / "b.py").write_text("class A: ...\nclass B: ...\n", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("no code\n", encoding="utf-8")
    assert structure.size(tmp_path) == (2, 4)
    assert structure.repeated_classes(tmp_path) == ["A"]
    assert structure.like_pythons(tmp_path) == ["random"]
