"""Texts that act on a terminal, a page, a table or a spreadsheet: none is left to act."""

import ast
import json
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastgcn.report.page import Table, markdown
from fastgcn.text import guard, printable, printable_json, unguard

SOURCES = Path(__file__).parents[1] / "src" / "fastgcn"
ACTING = ["\x1b", "\x00", "\x07", "\r", "\n", "\x7f", "\x9b", "\u202e", "\u2066", "\u200b",
          "\ufeff", "\u2028", "\ud800", "\uffff", "\U000e0041"]  # fmt: skip


@pytest.mark.parametrize("character", ACTING, ids=ascii)
def test_characters_that_act_are_shown(character: str) -> None:
    shown = printable(f"a{character}b")
    assert character not in shown
    assert shown == f"a{character.encode('unicode_escape').decode()}b"


@pytest.mark.parametrize("text", ["Ünïcode 中文 עברית", "می\u200cخواهم", "👩\u200d🔬", r"C:\new"])
def test_words_of_every_language_stay(text: str) -> None:
    assert printable(text) == text


@given(st.text(st.characters(), max_size=20))
def test_json_keeps_its_value(text: str) -> None:
    for unicode in (False, True):
        plain = printable_json(json.dumps({text: text}, ensure_ascii=not unicode))
        assert json.loads(plain) == {text: text}
        assert plain == printable(plain)


def guarded(text: str) -> str:
    found: str = guard(pyarrow.array([text]))[0].as_py()
    return found


@pytest.mark.parametrize(
    "text", ["=cmd|' /C calc'!A0", "+1+2", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "-", "'=1", "''@x"]
)
def test_what_a_spreadsheet_would_calculate_gets_an_apostrophe(text: str) -> None:
    assert guarded(text) == "'" + text


@pytest.mark.parametrize("text", ["-5", "+1.5", "-1e-5", "-.5", "a=b", "'tis", "", " =1", "p_=x"])
def test_other_cells_stay(text: str) -> None:
    assert guarded(text) == text


@given(st.text(st.sampled_from("'=+-@\t\r1.e a"), max_size=6))
def test_every_guarded_text_comes_back(text: str) -> None:
    cell = guarded(text)
    assert (unguard(cell) if cell != text else cell) == text
    assert cell == text or cell[0] == "'"


def test_a_markdown_table_keeps_its_shape() -> None:
    nasty = "a|b\n| c <script>alert(1)</script> [x](javascript:1) \\"
    page = markdown(Table(("h", nasty), [("r", nasty)], "Caption"))
    rows = page.splitlines()
    assert len(rows) == 5
    assert "<script" not in page
    assert all(row.replace(r"\|", "").count("|") == 3 for row in rows[:3])
    assert "](" not in page.replace(r"\[x](", "")


def test_only_the_border_prints() -> None:
    """Text goes to the terminal through functions that make it printable."""
    border = {"progress.py", "cli/output.py"}
    for path in SOURCES.rglob("*.py"):
        name = path.relative_to(SOURCES).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [
            ast.unparse(node)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
        ]
        # A version, a table of settings and the numbers of an epoch are the package's own texts.
        own = {"cli/__init__.py": 1, "config.py": 1, "train/callbacks.py": 1}.get(name, 0)
        assert name in border or len([c for c in calls if "printable(" not in c]) == own, calls
