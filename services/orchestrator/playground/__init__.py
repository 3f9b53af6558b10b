"""The playground: one page without outside assets, and the headers that let it run its own script and nothing else."""

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib.resources import files


def _hash(tag: str) -> str:
    """The source expression that allows the page's one inline element of this kind."""
    content = re.search(f"<{tag}>(.*?)</{tag}>", PAGE, re.DOTALL)
    assert content is not None
    return "'sha256-" + base64.b64encode(hashlib.sha256(content[1].encode()).digest()).decode() + "'"


PAGE = files(__name__).joinpath("index.html").read_text()
HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        f"default-src 'none'; script-src {_hash('script')}; style-src {_hash('style')}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
