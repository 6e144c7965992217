"""What every picture shares: paper, colours, text, legend, and the frame that carries them."""

import html
import unicodedata
from collections.abc import Iterable, Sequence
from hashlib import sha256

# Units of the view box. A phone shows the width in about 350 pixels, so that text of 14 units is
# about 12 pixels high there and 17 on a desktop.
WIDTH = 420
TEXT = 14
LINE = 19  # from one line of text to the next
MARGIN = 8

COLOURS = 8

# Okabe and Ito's colours, which colour-blind readers can tell apart, made darker or lighter where
# they would not stand out from the paper. Print is always on white paper.
_LIGHT = ["#0072b2", "#d55e00", "#00835f", "#aa4499", "#8a6d00", "#3d8fc7", "#882255", "#4d5560"]
_DARK = ["#5ab4ec", "#ff9a5c", "#35c99c", "#e59ad4", "#ecc94b", "#a5d4ff", "#f2839b", "#b4bdc8"]


def _variables(colours: Sequence[str], **named: str) -> str:
    values = {f"c{i}": colour for i, colour in enumerate(colours)} | named
    return "".join(f"--fg-{name}:{value};" for name, value in values.items())


_STYLE = (
    ".fg-plot{"
    + _variables(
        _LIGHT, paper="#ffffff", ink="#1b1f24", soft="#59636e", grid="#dfe3e8", heat="#004c80"
    )
    + "font:14px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}"
    "@media screen and (prefers-color-scheme:dark){.fg-plot{"
    + _variables(
        _DARK, paper="#14181d", ink="#e8ebee", soft="#a4adb8", grid="#2f3740", heat="#6cbcf0"
    )
    + "}}"
    ".fg-plot text{fill:var(--fg-ink)}"
    ".fg-plot .fg-soft{fill:var(--fg-soft)}"
    ".fg-plot .fg-head{font-weight:600;font-size:15px}"
    ".fg-plot .fg-strong{font-weight:600}"
    ".fg-plot .fg-small{font-size:12px}"
    ".fg-plot .fg-on{fill:var(--fg-paper)}"
    ".fg-plot .fg-paper{fill:var(--fg-paper)}"
    ".fg-plot .fg-grid{stroke:var(--fg-grid);stroke-width:1;fill:none}"
    ".fg-plot .fg-axis{stroke:var(--fg-soft);stroke-width:1;fill:none}"
    ".fg-plot .fg-heat{fill:var(--fg-heat)}"
    ".fg-plot .fg-other{--fg-here:var(--fg-soft)}"
    + "".join(f".fg-plot .fg-c{i}{{--fg-here:var(--fg-c{i})}}" for i in range(COLOURS))
    + ".fg-plot .fg-line{stroke:var(--fg-here);stroke-width:2;fill:none;"
    "stroke-linejoin:round;stroke-linecap:round}"
    ".fg-plot .fg-dash{stroke-dasharray:6 5}"
    ".fg-plot .fg-fill{fill:var(--fg-here)}"
    ".fg-plot .fg-band{fill:var(--fg-here);fill-opacity:.18}"
    ".fg-plot .fg-dots{stroke:var(--fg-here);stroke-width:5;fill:none;"
    "stroke-linecap:round}"
    ".fg-plot .fg-ring{stroke-width:6}"
    ".fg-plot .fg-hole{stroke:var(--fg-paper);stroke-width:3;fill:none;stroke-linecap:round}"
)

# Marker shapes around the origin, so that series differ by more than their colour.
_MARKERS = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "M-3.5-3.5h7v7h-7z",
    "M0-4.8L4.6 3.6H-4.6z",
    "M0-5L5 0L0 5L-5 0z",
    "M0 4.8L4.6-3.6H-4.6z",
    "M-4.5-1.5h3v-3h3v3h3v3h-3v3h-3v-3h-3z",
)


def number(value: float) -> str:
    """A coordinate: a tenth of a unit is finer than a screen shows.

    >>> number(12.04), number(-0.04), number(7.25)
    ('12', '0', '7.2')
    """
    text = f"{value:.1f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def escape(text: object) -> str:
    """Text as XML holds it; characters that XML forbids become a visible stand-in."""
    allowed = (
        c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs", "Cn") else "�"
        for c in str(text)
    )
    return html.escape("".join(allowed))


def text_width(text: str, size: float = TEXT) -> float:
    """About how wide text is; a little too much rather than too little.

    >>> text_width("wide") > text_width("thin")
    True
    """
    return size * sum(map(_letter_width, text))


def _letter_width(letter: str) -> float:
    """In units of the letters' height, for a sans serif."""
    if letter in "iljft.,:;'|!()[] ":
        return 0.36
    if letter in "mwMW%@—ABCDGHNOQRUVXY":
        return 0.82
    return 1.0 if unicodedata.east_asian_width(letter) in "WF" else 0.6


def shorten(text: str, width: float, size: float = TEXT) -> str:
    """Text cut to about a width; both of its ends stay, as names often differ in their last part.

    >>> shorten("Neural_Networks", 90)
    'Neura…orks'
    """
    if text_width(text, size) <= width:
        return text
    kept = len(text)
    while kept > 1 and text_width(_ends(text, kept), size) > width:
        kept -= 1
    return _ends(text, kept)


def _ends(text: str, kept: int) -> str:
    return text[: kept - kept // 2] + "…" + text[len(text) - kept // 2 :]


def wrap(text: str, width: float, size: float = TEXT) -> list[str]:
    """Lines of whole words within a width.

    >>> wrap("time a batch", 60)
    ['time a', 'batch']
    """
    lines: list[str] = []
    for word in text.split():
        if lines and text_width(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def label(x: float, y: float, text: object, *, anchor: str = "start", style: str = "") -> str:
    """One line of text with its baseline at y."""
    attributes = "" if anchor == "start" else f' text-anchor="{anchor}"'
    attributes += f' class="{style}"' if style else ""
    return f'<text x="{number(x)}" y="{number(y)}"{attributes}>{escape(text)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    path = f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}"
    return f'<path class="{style}" d="{path}"/>'


def rect(x: float, y: float, width: float, height: float, style: str, extra: str = "") -> str:
    box = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    return f'<rect class="{style}" {box}{extra}/>'


def colour(index: int) -> str:
    """The class of the colour of a series."""
    return f"fg-c{index % COLOURS}"


def marker(x: float, y: float, index: int) -> str:
    """The marker of a series at a point."""
    shape = _MARKERS[index % len(_MARKERS)]
    place = f"translate({number(x)} {number(y)})"
    return f'<path class="fg-fill {colour(index)}" transform="{place}" d="{shape}"/>'


def legend(entries: Iterable[tuple[str, str]], top: float) -> tuple[str, float]:
    """Keys and their names in rows from `top` down, and where they end.

    A key is drawn in a box of 24 by 14 units whose top left corner is its origin.
    """
    parts, x, y = [], float(MARGIN), top
    for key, name in entries:
        shown = shorten(name, WIDTH - 2 * MARGIN - 30)
        width = 30 + text_width(shown) + 12
        if x > MARGIN and x + width - 12 > WIDTH - MARGIN:
            x, y = float(MARGIN), y + LINE
        parts.append(f'<g transform="translate({number(x)} {number(y + 3)})">{key}</g>')
        parts.append(label(x + 30, y + 14.5, shown))
        x += width
    return "".join(parts), y + (LINE + 5 if parts else 0)


def head(title: str) -> tuple[str, float]:
    """The title above a picture, in as many lines as it takes, and where it ends."""
    lines = wrap(title, WIDTH - 2 * MARGIN, 16)
    parts = [
        label(MARGIN, MARGIN + 13 + i * LINE, text, style="fg-head") for i, text in enumerate(lines)
    ]
    return "".join(parts), MARGIN + LINE * len(lines) + 4


def picture(body: str, *, height: float, title: str, description: str) -> str:
    """The whole `<svg>`, with its name and description for those who do not see it."""
    size = number(height)
    # Ids must differ between the pictures of a page and be the same whenever it is made again.
    key = sha256((title + description + body).encode()).hexdigest()[:10]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fg-plot" viewBox="0 0 {WIDTH} {size}" '
        f'width="{WIDTH * 5 // 4}" height="{number(height * 1.25)}" role="img" '
        f'aria-labelledby="t{key} d{key}">'
        f'<title id="t{key}">{escape(title)}</title><desc id="d{key}">{escape(description)}</desc>'
        f"<style>{_STYLE}</style>"
        f'<rect class="fg-paper" width="{WIDTH}" height="{size}"/>{body}</svg>'
    )
