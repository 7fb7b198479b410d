"""Pictures that open at full size, for those who read on a phone."""

import re

ALONE = re.compile(r'<p>(<img [^>]*?src="([^"]+)"[^>]*>)</p>')


def on_page_content(content: str, **_) -> str:
    return ALONE.sub(r'<p><a class="figure" href="\2">\1</a></p>', content)
