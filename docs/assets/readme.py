"""Sections of README.md in other pages, so that each is written once: `<!-- README: What it does -->`."""

import pathlib
import re

README = pathlib.Path(__file__).parent.parent.parent / "README.md"


def on_page_markdown(markdown: str, **_) -> str:
    return re.sub(r"<!-- README: (.+?) -->", lambda found: section(found[1]), markdown)


def section(title: str) -> str:
    """From its heading to the next, with links as seen from docs/."""
    parts = re.split(r"^(?=## )", README.read_text(), flags=re.MULTILINE)
    (found,) = [part for part in parts if part.startswith(f"## {title}\n")]
    found = re.sub(r'href="docs/([\w/-]+)\.md"', r'href="\1.html"', found)
    return found.replace('src="docs/', 'src="').replace("](docs/", "](").rstrip()
