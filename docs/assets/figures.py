"""Pictures for those who read on a phone: they open at full size, and wide ones keep a width at which they can be read."""

import pathlib
import re

DOCS = pathlib.Path(__file__).parent.parent
ALONE = re.compile(r'<p>(<img [^>]*?src="([^"]+)"[^>]*>)</p>')
WIDE = 1200  # pixels: those of 7 inches have 1050, those of several panels 1275 and more


def on_page_content(content: str, page, **_) -> str:
    def linked(found: re.Match) -> str:
        kind = "figure wide" if _width((DOCS / page.file.src_uri).parent / found[2]) > WIDE else "figure"
        return f'<p><a class="{kind}" href="{found[2]}">{found[1]}</a></p>'

    return ALONE.sub(linked, content)


def _width(file: pathlib.Path) -> int:
    """Of a PNG, whose header begins with it."""
    return int.from_bytes(file.read_bytes()[16:20], "big")
