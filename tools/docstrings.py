"""An extension of Griffe: examples in docstrings are shown as code on the site.

Docstrings have their examples as doctests (`>>> ...`), without a heading, which tests run.
"""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^|(?<=\n))(>>> .*?)(?=\n\n|\Z)", re.DOTALL)


def fenced(text: str) -> str:
    """
    >>> print(fenced("Text.\\n\\n>>> 1 + 1\\n2\\n\\nMore."))
    Text.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    <BLANKLINE>
    More.
    """
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found[1]}\n```", text)


class Examples(griffe.Extension):
    """Fences the examples of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
