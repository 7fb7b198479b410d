"""Formulas as MathML, made while the site is built: browsers draw it themselves, without scripts or fonts from elsewhere."""

import html
import re

from math_core import LatexToMathML

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>([,.;:)]*)', re.DOTALL)
# A prime has the height of a superscript by itself; as one it would be raised twice, and too small to see.
PRIME = re.compile(r"<msup>(<mi[^>]*>[^<]*</mi>)<mo>([′″‴])</mo></msup>")
PRIME_AND_INDEX = re.compile(r"<msubsup>(<mi[^>]*>[^<]*</mi>)((?:(?!</?msubsup>|<mo>[′″‴]).)*)<mo>([′″‴])</mo></msubsup>")
CONVERTER = LatexToMathML(fancy_error=False)


def on_page_content(content: str, **_) -> str:
    """What pymdownx.arithmatex left as LaTeX, `\\(…\\)` in a line and `\\[…\\]` on lines of its own.

    A mistake in one ends the build.
    """
    return FORMULA.sub(_drawn, content)


def _drawn(found: re.Match) -> str:
    on_its_own = found[1] == "div"
    formula = CONVERTER.convert_with_local_state(html.unescape(found[2]).strip(), displaystyle=on_its_own)
    formula = PRIME.sub(r'<mrow>\1<mo lspace="0" rspace="0">\2</mo></mrow>', formula)
    formula = PRIME_AND_INDEX.sub(r'<mrow><msub>\1\2</msub><mo lspace="0" rspace="0">\3</mo></mrow>', formula)
    if on_its_own:
        return f'<div class="formula">{formula}</div>{found[3]}'
    return f'<span class="whole">{formula}{found[3]}</span>' if found[3] else formula  # no line begins with a comma
