"""Numbers stay whole at the end of a line: 1e-4 is not broken after its hyphen, 95 % not before its unit."""

import re

ELSEWHERE = re.compile(r"(<pre.*?</pre>|<code.*?</code>|<math.*?</math>|<[^>]*>)", re.DOTALL)
UNIT = re.compile(r"(?<=\d) (?=(?:%|[mµn]?s|[kMG]B)(?!\w))")
POWER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?e-\d+")


def on_page_content(content: str, **_) -> str:
    texts = ELSEWHERE.split(content)
    texts[::2] = [
        POWER.sub(r'<span class="whole">\g<0></span>', UNIT.sub("\N{NO-BREAK SPACE}", text)) for text in texts[::2]
    ]
    return "".join(texts)
