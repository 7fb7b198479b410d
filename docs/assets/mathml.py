"""Formulas as MathML, made while the site is built: browsers draw it themselves, without scripts or fonts from elsewhere."""

import html
import re

from math_core import LatexToMathML

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
CONVERTER = LatexToMathML(fancy_error=False)


def on_page_content(content: str, **_) -> str:
    """What pymdownx.arithmatex left as LaTeX, `\\(…\\)` in a line and `\\[…\\]` on lines of its own.

    A mistake in one ends the build.
    """
    return FORMULA.sub(_drawn, content)


def _drawn(found: re.Match) -> str:
    on_its_own = found[1] == "div"
    formula = CONVERTER.convert_with_local_state(html.unescape(found[2]).strip(), displaystyle=on_its_own)
    return f'<div class="formula">{formula}</div>' if on_its_own else formula
