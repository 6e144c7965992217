"""Text from files is never markup: what a terminal, a page, a table or a spreadsheet gets of it."""

import json
import re
from typing import Any

# Characters that act instead of being seen: controls (escape sequences begin with one), those that
# change the direction of text or hide, line separators, halves of surrogates, and those that XML
# forbids. Joiners stay, because words of some languages are written with them.
_ACTING = (
    "\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e0fff"
)
_ACTS = re.compile(f"[{_ACTING}]")

# A text that a spreadsheet would calculate, or one that `guard` has made of such a text.
FORMULA = r"^'*[=+\-@\t\r]"
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_GUARDED = re.compile(f"^'(?={FORMULA[1:]})")

_MARKDOWN = str.maketrans(
    {"\\": "&#92;", "&": "&amp;", "<": "&lt;", "|": r"\|", "[": r"\[", "*": r"\*"}
)


def printable(text: str, *, keep: str = "") -> str:
    r"""The text with characters that would act on a terminal or a page as visible escapes.

    Characters of `keep`, such as line ends, stay as they are.

    >>> print(printable("\x1b[31mred \u202egnp.exe"))
    \x1b[31mred \u202egnp.exe
    """
    return _ACTS.sub(lambda c: c[0] if c[0] in keep else _escape(c[0]), text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def printable_json(text: str) -> str:
    r"""JSON that has the same value and is printable.

    >>> print(printable_json('"\u202e"'))
    "\u202e"
    """
    return _ACTS.sub(lambda c: json.dumps(c[0])[1:-1], text)


def markdown_cell(text: str) -> str:
    r"""The text as a cell of a Markdown table; of markup, only `code` and _emphasis_ are left.

    >>> print(markdown_cell("a|b <b>[x](y)"))
    a\|b &lt;b>\[x](y)
    """
    return printable(text).translate(_MARKDOWN)


def guard(texts: Any) -> Any:
    """A pyarrow array of texts as cells that no spreadsheet calculates.

    A text that begins with = + - @, tab or carriage return, and is no number, gets an apostrophe.
    So does one that already begins with apostrophes and such a character: `unguard` then gives
    back every text.
    """
    from pyarrow import compute

    formula = compute.and_not(
        compute.match_substring_regex(texts, FORMULA), compute.match_substring_regex(texts, NUMBER)
    )
    return compute.if_else(formula, compute.binary_join_element_wise("'", texts, ""), texts)


def unguard(text: str) -> str:
    """The text that `guard` made this of.

    >>> unguard("'=1+2"), unguard("'tis")
    ('=1+2', "'tis")
    """
    return _GUARDED.sub("", text)
