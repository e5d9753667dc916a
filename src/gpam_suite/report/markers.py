"""Hand-written pages with generated parts: whatever stands between two markers is filled in, never typed.

<!-- table: NAME -->            <!-- figure: NAME -->
...                             ...
<!-- end -->                    <!-- end -->
"""

import re
from collections.abc import Mapping
from pathlib import Path

from gpam.errors import UsageError, did_you_mean

PART = re.compile(r"(<!-- (table|figure): ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str, parts: Mapping[str, str], page: Path) -> str:
    """``text`` of ``page`` with each marked part replaced by ``parts[NAME]``.

    Raises:
        UsageError: the page asks for a part that there is not.
    """

    def part(match: re.Match[str]) -> str:
        if (name := match[3]) not in parts:
            raise UsageError(f"{page} asks for the {match[2]} '{name}'{did_you_mean(name, parts)}, there is none.")
        return f"{match[1]}\n{parts[name]}\n{match[4]}"

    return PART.sub(part, text)
