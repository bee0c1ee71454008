"""Numbers and names formatted for people, and URLs without user, password and query."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any
from urllib.parse import unquote

USER = r"(?:[^/\s@'\"]+|[^/\s@'\":]*:[^\s@'\"]*)@"
"""What stands before the @ of a URL. A secret may hold a slash, a path an @."""


PASSWORD = r"[^\s/@'\"<(,:]+:(?!//)[^\s@'\"]+@"
"""User and password of a URL that a file system cut its protocol off."""


SECRETS = re.compile(
    r"secret|password|passwd|passphrase|token|credential|account_key|connection_string"
    r"|authorization|^sas(_|$)|^key$",
    re.IGNORECASE,
)
"""Names of options and of the environment whose values are hidden."""

USER_PASSWORD = re.compile(r"[^\s/:@'\"]+:([^\s@'\"/][^\s@'\"]*)@")
"""user:password@ wherever it stands, in a URL or in what was meant as one."""

SHORTEST = 6
"""Smallest length of a secret that is hidden wherever it occurs."""

hidden: set[str] = set()
"""Texts that no message shows."""


def hide(values: Iterable[str]) -> None:
    """Never show these, alone or within a text."""
    hidden.update(value for value in values if len(value) >= SHORTEST)


def hide_url(url: str) -> None:
    """Hide the password of a URL, as it is written and as it is meant."""
    found = USER_PASSWORD.search(url)
    if found:
        hidden.add(found[0])  # whole, however short
        hide([found[1], unquote(found[1])])


def hide_options(options: Mapping[str, Any] | None) -> None:
    """Hide the texts under names such as "secret" or "token", however deep."""
    for name, value in (options or {}).items():
        if isinstance(value, Mapping):
            hide_options(value)
        elif isinstance(value, str):
            hide_url(value)
            if SECRETS.search(str(name)):
                hide([value])


def without_hidden(text: str) -> str:
    """Text without what is hidden."""
    for value in sorted(hidden, key=len, reverse=True):
        text = text.replace(value, "…")
    return text


def format_bytes(count: float) -> str:
    """Bytes in binary units: "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def format_seconds(seconds: float) -> str:
    """Seconds in words: "12 s", "3.5 min", "2.1 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def format_share(share: float) -> str:
    """A share that was stated, with all of its digits: "95%", "97.5%", "99.9%"."""
    return f"{100 * share:.12g}%"


def printable(text: str) -> str:
    """Text whose control characters are escaped: units, names and paths cannot steer a terminal."""
    return "".join(
        letter
        if letter in "\n\t" or unicodedata.category(letter) != "Cc"
        else f"\\x{ord(letter):02x}"
        for letter in text
    )


def redact_url(url: str) -> str:
    """A URL without user, password and query."""
    return re.sub(r"\?.*$", "?…", re.sub(f"://{USER}", "://…@", url))


def cause_words(error: BaseException) -> str:
    """An error of a library in one line without secrets: its type, text, and a service's code.

    Services answer with codes such as ``ExpiredToken``, which file systems put into a cause. Texts
    of the error and of its causes lose what is hidden, too: a traceback shows them.
    """
    hide_in(error)
    text = redact_url(without_hidden(str(getattr(error, "strerror", None) or error)))
    text = re.sub(PASSWORD, "…@", text)
    words = f"{type(error).__name__}: {' '.join(text.split())[:300]}".rstrip(": .")
    seen: BaseException | None = error
    while seen is not None:
        answer = getattr(seen, "response", None)
        code = answer.get("Error", {}).get("Code") if isinstance(answer, dict) else None
        if code and str(code) not in words:
            return f"{words} ({code})"
        seen = seen.__cause__ or seen.__context__
    return words


def hide_in(error: BaseException) -> None:
    """Take what is hidden out of the texts of an error and of its causes."""
    seen: BaseException | None = error
    while seen is not None and hidden:
        plain = tuple(without_hidden(a) if isinstance(a, str) else a for a in seen.args)
        if plain != seen.args:
            seen.args = plain
        if isinstance(getattr(seen, "strerror", None), str):
            seen.strerror = without_hidden(seen.strerror)  # type: ignore[attr-defined]
        seen = seen.__cause__ or seen.__context__


def suggestion(name: str, known: Iterable[str]) -> str:
    """' Did you mean "t"?' or the names there are."""
    known = [str(other) for other in known]
    close = [each for each in get_close_matches(str(name), known, n=3) if each != str(name)]
    if close:
        return f"Did you mean {list_names(close, 'or')}?"
    return f"There are: {list_names(known)}." if known else "There are none."


def list_names(names: Iterable[str], last: str = "and") -> str:
    """Names in words, at most 12 of them: "a", "b" and "c"."""
    quoted = [f'"{name}"' for name in names]
    if len(quoted) > 12:
        return ", ".join(quoted[:12]) + f", … ({len(quoted)} in all)"
    if len(quoted) < 2:
        return "".join(quoted)
    return ", ".join(quoted[:-1]) + f" {last} {quoted[-1]}"
