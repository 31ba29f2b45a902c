"""Recognise credentials in text: to refuse storing them, and to mask them when text is shown.

Every rule starts from a published prefix, so a random string alone is never reported. A prefix
alone is prose; what follows it must have the known length and must not read as words
(`_unwordlike`). Where the formats come from:

- Anthropic: https://platform.claude.com/docs/en/get-api-key has the prefix `sk-ant-`.
- OpenAI: no published format. gitleaks has 48 characters after `sk-`, and 124 or more after
  `sk-proj-`, `sk-svcacct-` and `sk-admin-`.
- GitHub: "ghs_[A-Za-z0-9\\._]{36,}" for old tokens and those with a JWT inside:
  https://github.blog/changelog/2026-05-15-github-app-installation-tokens-per-request-override-header/
  The other prefixes:
  https://github.blog/changelog/2021-03-31-authentication-token-format-updates-are-generally-available/
- GitLab: 20 characters, or a routable token with dots:
  https://gitlab.com/gitlab-org/gitlab/-/merge_requests/169322
- Slack: https://docs.slack.dev/authentication/tokens has the prefixes; detect-secrets and gitleaks
  have what follows, numbers and then one part of letters and digits.
- AWS: the prefixes, and examples of 20 characters:
  https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html
- Google: `AIza` and 35 characters: https://learn.microsoft.com/purview/sit-defn-google-api-key
- Stripe asks scanners for "(sk|rk)_live_[0-9a-z]{10,128}", in either case and for live keys only:
  https://gitlab.com/gitlab-org/gitlab/-/issues/458019
- npm: GitHub's format: https://github.blog/security/announcing-npms-new-access-token-format
- PyPI: `pypi-` and a base64url macaroon: https://pypi.org/help/#apitoken
- JSON Web Token: RFC 7515 section 7.1 (three parts), RFC 7516 section 7.1 (five).
- Private keys: RFC 7468 section 2, RFC 1421 section 4.6 (headers), RFC 9580 section 6.2 (OpenPGP).
- Webhooks: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks,
  https://discord.com/developers/docs/resources/webhook and, for Teams, the two forms in
  https://github.com/swisscom/backman/issues/102: connectors, and Workflows signed with `sig=`.
- Passwords in URLs: RFC 3986 section 3.2.1.

The cost is linear in the length of the text: a rule first looks for its literal, repeats are
bounded or possessive, and a run of characters that was read and refused is not read again by that
rule.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

__all__ = ["Secret", "find", "mask"]


@dataclass(frozen=True, slots=True)
class Secret:
    """One credential in a text.

    `start` and `end` are offsets in characters (code points), end exclusive. `kind` is words for a
    person, such as "GitHub token". `prefix` is the beginning of the span that may be shown, such as
    "ghp_". It is empty for a password in a URL, whose span is the password alone. The span of a
    private key runs from its BEGIN line, which is the prefix, to the last character of its body.
    """

    start: int
    end: int
    kind: str
    prefix: str


@dataclass(frozen=True, slots=True)
class _Rule:
    """`needle` decides cheaply whether to look at all; `lead` matches what may stay visible; `body`
    is matched right after it, and its group 1 is the run that need not be read again if refused."""

    kind: str
    needle: str
    lead: re.Pattern[str]
    body: re.Pattern[str]
    accept: Callable[[re.Match[str]], bool]


_PRIVATE_KEY = "private key"
_PRIVATE = "PRIVATE KEY"
_URL_PASSWORD = "password in a URL"

# Five dashes are not part of a token: they begin or end a line around a private key.
_DASH = "-(?!----)"
_BASE62 = "[A-Za-z0-9]"
_WORD_CHARACTER = "[A-Za-z0-9_]"
_BASE64URL = f"(?:[A-Za-z0-9_]|{_DASH})"

# A letter before the prefix makes it the tail of a word ("task-", "disk-"), except where that
# letter ends an escape: JSON and source ("\n", "\u000a", "\x0a"), a URL ("%3D") or a terminal
# colour (ESC "[32m"). Look-behind has a fixed width in `re`, hence one alternative for each.
_ESCAPES_ENDING_IN_A_LETTER = (
    r"\\[nrtbf]",
    r"\\u[0-9A-Fa-f]{4}",
    r"\\x[0-9A-Fa-f]{2}",
    r"%[0-9A-Fa-f]{2}",
    r"[0-9\[]m",
)


def _lead(literal: str, following: str) -> re.Pattern[str]:
    """`literal` where it begins a word and `following` comes next. The look-behinds stand after the
    literal: over 5 MB without it they cost 0.001 s there and 0.37 s in front."""
    quoted = re.escape(literal)
    escapes = "|".join(f"(?<={escape}{quoted})" for escape in _ESCAPES_ENDING_IN_A_LETTER)
    return re.compile(f"{quoted}(?:(?<![A-Za-z0-9]{quoted})|{escapes})(?={following})")


_SEGMENT = re.compile("[A-Za-z0-9]+")
_WORD = re.compile("[A-Za-z]{1,31}[0-9]{0,4}|[0-9]{1,9}|[0-9]{1,4}[A-Za-z]{1,12}")
_LOWER_THEN_UPPER = re.compile("[a-z](?=[A-Z])")
_FILLER = re.compile(r"([xX0*])\1{7}")


def _is_wordlike(segment: str) -> bool:
    if _FILLER.search(segment):
        return True
    if not _WORD.fullmatch(segment):
        return False
    # "HistGradientBoostingClassifier" turns upward once in 10 characters, random letters once in 4.
    return len(segment) < 12 or len(_LOWER_THEN_UPPER.findall(segment)) * 5 < len(segment)


def _unwordlike(body: str, enough: int) -> bool:
    """Whether at least `enough` characters of `body` lie in segments that cannot be words.

    Segments are separated by anything but ASCII letters and digits. Words are letters with up to
    four digits after them ("gpt4", "sha256"), short numbers, and numbers with a unit ("70b");
    placeholder runs ("xxxxxxxx") count as words. An entropy floor would not do: that of gitleaks is
    3 bits per character, and "learn-based-pipeline-with-random-forest" has 3.9.
    """
    total = 0
    for segment in _SEGMENT.finditer(body):
        if not _is_wordlike(segment[0]):
            total += segment.end() - segment.start()
            if total >= enough:
                return True
    return False


def _random(enough: int) -> Callable[[re.Match[str]], bool]:
    return lambda match: _unwordlike(match[1], enough)


def _not_filler(match: re.Match[str]) -> bool:
    return _FILLER.search(match[1]) is None


def _token(kind: str, prefix: str, alphabet: str, shortest: int, enough: int) -> _Rule:
    """A prefix and at least `shortest` characters of `alphabet`, `enough` of them not in words."""
    return _Rule(
        kind,
        prefix,
        _lead(prefix, f"{alphabet}{{{shortest}}}"),
        re.compile(f"({alphabet}*+)"),
        _random(enough),
    )


def _exact(kind: str, prefix: str, alphabet: str, length: int) -> _Rule:
    """A prefix and exactly `length` characters of `alphabet`, then no letter or digit."""
    return _Rule(
        kind,
        prefix,
        _lead(prefix, f"{alphabet}{{{length}}}(?!{_BASE62})"),
        re.compile(f"({alphabet}{{{length}}})"),
        _not_filler,
    )


_CHANGE = re.compile("[a-z](?=[A-Z0-9])|[A-Z](?=[0-9])|[0-9](?=[A-Za-z])")


def _is_gitlab_token(match: re.Match[str]) -> bool:
    # 20 characters may fall into short segments: `_unwordlike` with 8 missed 4 % of random bodies.
    return len(_CHANGE.findall(match[1])) >= 3


def _is_slack_token(match: re.Match[str]) -> bool:
    segments = match[1].split("-")
    last = segments[-1]
    if len(last) < 8 or last.isdigit() or _FILLER.search(last):
        return False
    numbered = any(len(segment) >= 8 and segment.isdigit() for segment in segments)
    return numbered or _unwordlike(match[1], 12)


def _is_stripe_key(match: re.Match[str]) -> bool:
    body = match[1]
    long_enough = len(body) >= 20 or any(character.isdigit() for character in body)
    return long_enough and _FILLER.search(body) is None


def _is_complete(match: re.Match[str]) -> bool:
    return match[2] is not None


_JWT_BODY = re.compile(
    f"({_BASE64URL}*+)"
    "("
    rf"\.{_BASE64URL}{{6,}}+\.{_BASE64URL}{{8,}}+(?:\.{_BASE64URL}{{8,}}+\.{_BASE64URL}{{8,}}+)?+"
    rf"|\.\.{_BASE64URL}{{8,}}+\.{_BASE64URL}{{8,}}+\.{_BASE64URL}{{8,}}+"
    ")?+"
)

_SLASH = r"\\?/"
_SCHEME = f"https?:{_SLASH}{_SLASH}"


def _is_slack_webhook(match: re.Match[str]) -> bool:
    parts = match[1].replace("\\", "").strip("/").split("/")
    named = len(parts) >= 3 and parts[0][:1] in ("T", "E")
    return named and len(parts[-1]) >= 16 and _FILLER.search(parts[-1]) is None


def _is_connector_webhook(match: re.Match[str]) -> bool:
    before, marker, after = match[1].replace("\\", "").partition("/IncomingWebhook/")
    return bool(marker) and len(before) >= 16 and _unwordlike(after, 16)


_SIGNATURE = r"(?:[?&;]|\\u0026)sig="
_SIGNED_BODY = re.compile(
    rf"""((?:(?!{_SIGNATURE})(?:[^\s"'`<>\\]|\\/|\\u0026))*)"""
    # Not possessive: Python 3.11.2 goes wrong there (gh-106052), and an optional end never looks back.
    rf"({_SIGNATURE}(?:[A-Za-z0-9_%]|{_DASH}){{20,}}+)?"
)


def _signed_url(host: str) -> _Rule:
    return _Rule(
        "Teams webhook URL",
        host,
        re.compile(
            rf"{_SCHEME}[A-Za-z0-9.-]{{1,150}}+(?<=\.{re.escape(host)})(?::[0-9]{{1,5}})?{_SLASH}"
        ),
        _SIGNED_BODY,
        _is_complete,
    )


# Of 20,000 random bodies drawn for each of these tokens none was missed, except 0.2 % for `glpat-`
# with 20 characters.
_RULES: tuple[_Rule, ...] = (
    _token("Anthropic API key", "sk-ant-", _BASE64URL, 20, 16),
    _token("OpenAI API key", "sk-proj-", _BASE64URL, 20, 16),
    _token("OpenAI API key", "sk-svcacct-", _BASE64URL, 20, 16),
    _token("OpenAI API key", "sk-admin-", _BASE64URL, 20, 16),
    _token("OpenAI API key", "sk-", _BASE64URL, 20, 16),
    *(
        _token("GitHub token", prefix, _WORD_CHARACTER, 36, 20)
        for prefix in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")
    ),
    _token("GitHub token", "github_pat_", _WORD_CHARACTER, 22, 16),
    _Rule(
        "GitLab token",
        "glpat-",
        _lead("glpat-", f"{_BASE64URL}{{20}}"),
        re.compile(rf"({_BASE64URL}*+)(?:\.[0-9a-z]{{2}}\.?[0-9a-z]{{7}}(?!{_BASE62}))?"),
        _is_gitlab_token,
    ),
    *(
        _Rule(
            "Slack token",
            prefix,
            _lead(prefix, f"(?:{_BASE62}|{_DASH}){{20}}"),
            re.compile(f"((?:{_BASE62}|{_DASH})*+)"),
            _is_slack_token,
        )
        for prefix in ("xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-")
    ),
    _exact("AWS access key ID", "AKIA", "[A-Z0-9]", 16),
    _exact("AWS access key ID", "ASIA", "[A-Z0-9]", 16),
    _exact("Google API key", "AIza", _BASE64URL, 35),
    *(
        _Rule(
            "Stripe key",
            prefix,
            _lead(prefix, f"{_BASE62}{{10}}"),
            re.compile(f"({_BASE62}*+)"),
            _is_stripe_key,
        )
        for prefix in ("sk_live_", "rk_live_")
    ),
    _Rule(
        "npm access token",
        "npm_",
        _lead("npm_", f"{_BASE62}{{36}}"),
        re.compile(f"({_BASE62}*+)"),
        _not_filler,
    ),
    _token("PyPI API token", "pypi-", _BASE64URL, 20, 16),
    _Rule("JSON Web Token", "eyJ", _lead("eyJ", f"{_BASE64URL}{{10}}"), _JWT_BODY, _is_complete),
    _Rule(
        "Slack webhook URL",
        "hooks.slack.com",
        re.compile(rf"{_SCHEME}hooks\.slack\.com{_SLASH}(?:services|workflows|triggers){_SLASH}"),
        re.compile(r"((?:[A-Za-z0-9_/]|\\/)*+)"),
        _is_slack_webhook,
    ),
    _Rule(
        "Discord webhook URL",
        "webhooks",
        re.compile(
            rf"{_SCHEME}(?:ptb\.|canary\.)?discord(?:app)?\.com{_SLASH}api{_SLASH}"
            rf"(?:v[0-9]{{1,2}}{_SLASH})?webhooks{_SLASH}"
        ),
        re.compile(rf"([0-9]{{15,22}}{_SLASH}{_BASE64URL}{{30,}}+)"),
        _not_filler,
    ),
    _Rule(
        "Teams webhook URL",
        "IncomingWebhook",
        re.compile(
            rf"{_SCHEME}(?:[A-Za-z0-9-]{{1,63}}\.webhook|outlook)\.office(?:365)?\.com{_SLASH}"
            rf"webhook(?:b2)?{_SLASH}"
        ),
        re.compile(rf"((?:[A-Za-z0-9@_/]|\\/|{_DASH})*+)"),
        _is_connector_webhook,
    ),
    _signed_url("logic.azure.com"),
    _signed_url("api.powerplatform.com"),
)


def _by_rule(text: str, rule: _Rule) -> Iterator[Secret]:
    position = 0
    while lead := rule.lead.search(text, position):
        body = rule.body.match(text, lead.end())
        if body is None:
            position = lead.end()
        elif rule.accept(body):
            yield Secret(lead.start(), body.end(), rule.kind, lead[0])
            position = body.end()
        else:
            position = max(lead.end(), body.end(1))


_PEM_MARKER = re.compile("-----(BEGIN|END) (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_PEM_HEADER = re.compile(r"[A-Za-z][A-Za-z-]{0,30}: ")
# What ends a line of a key: a line break, an escape as JSON or source writes it, or a quote. "\/"
# is left in because JSON may write the "/" of base64 so.
_PEM_BREAK = re.compile(
    "(?<!\\\\)\\\\++(?!/)(?:u[0-9A-Fa-f]{4}|[A-Za-z])?+|[\"'`\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]"
)
# Before the base64 may stand a quote mark, a bullet or a line number, as tools print them.
_PEM_LINE = re.compile(
    r"[>|#*\s-]{0,12}(?:[0-9]{1,7}[:|→│\t ]{1,4})?"
    r"([A-Za-z0-9+/=\\]{16,}+(?:[ \t]++[A-Za-z0-9+/=\\]{16,}+)*+(?:[ \t]++[A-Za-z0-9+/=\\]{1,15})?+"
    r"|[A-Za-z0-9+/=\\]{1,15}+)\s*+"
)
_PEM_RUN = re.compile(r"[A-Za-z0-9+/=\\]{32,}+")
_LETTER = re.compile("[A-Za-z]")
_LETTER_OR_DIGIT = re.compile("[A-Za-z0-9]")
_QUOTE = re.compile("[\"'`]")
_END_OF_NAME = re.compile(r"""\\{0,8}["'`]\s{0,8}:""")
_PEM_SHORT = 16
_PEM_TAIL_LINE = 40

_Span = tuple[int, int]


def _pem_lines(text: str, start: int, stop: int) -> Iterator[_Span]:
    """Spans between breaks that hold more than blanks and punctuation."""
    position = start
    for separator in _PEM_BREAK.finditer(text, start, stop):
        if _LETTER_OR_DIGIT.search(text, position, separator.start()):
            yield position, separator.start()
        position = separator.end()
    if _LETTER_OR_DIGIT.search(text, position, stop):
        yield position, stop


def _key_material(text: str, line: _Span) -> tuple[list[_Span], bool]:
    """The base64 in a line, and whether the line holds nothing else. A name in JSON has none."""
    if _END_OF_NAME.match(text, line[1]):
        return [], False
    match = _PEM_LINE.fullmatch(text, *line)
    if match is not None:
        return ([match.span(1)], True) if _LETTER.search(match[1]) else ([], False)
    runs = _PEM_RUN.finditer(text, *line)
    return [r.span() for r in runs if _LETTER.search(r[0]) and _unwordlike(r[0], 16)], False


def _continues(text: str, key: list[_Span], line: _Span, length: int) -> bool:
    """Whether a line with `length` characters of base64 may go on from `key`. A short one must
    stand in the same string or be one: in indented JSON `null` may be the line after a key."""
    if length >= _PEM_SHORT or not _QUOTE.search(text, key[-1][1], line[0]):
        return True
    before, after = text[line[0] - 1 : line[0]], text[line[1] : line[1] + 1]
    return _QUOTE.match(before) is not None and (after == "\\" or _QUOTE.match(after) is not None)


def _length(spans: list[_Span]) -> int:
    return sum(end - start for start, end in spans)


def _pem_body(text: str, start: int, stop: int, closed: bool) -> list[_Span]:
    """Spans of key material after a BEGIN line, or none if no key follows.

    The first line after the headers must be base64, so that neither a sentence between two markers
    nor a masked key is one. Without an END line (`closed` is false) the key ends at the first line
    that is not base64, or after the first that is shorter than the first.
    """
    key: list[_Span] = []
    first_length = 0
    adjacent = False
    for line in _pem_lines(text, start, stop):
        spans, whole = _key_material(text, line)
        length = _length(spans)
        if not key:
            if _PEM_HEADER.match(text, *line):
                continue
            if length < _PEM_SHORT or _FILLER.search(text, *spans[0]):
                return []
            first_length = length
        elif (
            not spans
            or (length < _PEM_SHORT and not adjacent)
            or not _continues(text, key, line, length)
        ):
            if not closed:
                return key
            adjacent = False
            continue
        key += spans
        adjacent = True
        if not closed and (length < first_length or not whole):
            return key
    return key


def _pem_tail(text: str, start: int, stop: int) -> list[_Span]:
    """Spans of key material right before an END line, as where a text begins within a key."""
    tail: list[_Span] = []
    for line in _pem_lines(text, start, stop):
        spans, whole = _key_material(text, line)
        length = _length(spans)
        if not whole or (
            tail
            and (
                _length(tail[-1:]) < _length(tail[:1])
                or length > _length(tail[:1])
                or not _continues(text, tail, line, length)
            )
        ):
            tail = []
        if whole:
            tail += spans
    if _length(tail[:1]) < _PEM_TAIL_LINE or _FILLER.search(text, *tail[0]):
        return []
    return tail


def _private_keys(text: str) -> Iterator[tuple[Secret, list[_Span]]]:
    """Every private key, with the spans of its lines; one may come twice, by BEGIN and by END."""
    position = since = 0
    while marker := _PEM_MARKER.search(text, position):
        if marker[1] == "BEGIN":
            # Base64 holds no dashes: the next five are the END line, another key, or prose.
            stop = text.find("-----", marker.end())
            closed = stop >= 0 and text.startswith("-----END", stop)
            position = len(text) if stop < 0 else stop
            since = marker.end()
            spans = _pem_body(text, since, position, closed)
            if spans:
                yield Secret(marker.start(), spans[-1][1], _PRIVATE_KEY, marker[0]), spans
        else:
            spans = _pem_tail(text, since, marker.start())
            if spans:
                yield Secret(spans[0][0], spans[-1][1], _PRIVATE_KEY, ""), spans
            position = since = marker.end()


_AUTHORITY = re.compile(
    r"(?:://(?<=[A-Za-z0-9]://)|:\\/\\/(?<=[A-Za-z0-9]:\\/\\/))"
    r"""((?:[^\s"'`<>\\/?#\x00-\x20\x7f]|\\u(?:0026|(?!00[0-7])[0-9A-Fa-f]{4}))*+)"""
)
_PASSWORD_AT_LEAST = 3
_PORT = re.compile(r"[0-9]{1,5}[,;&|)\]}\\]")
# A variable, a printf or Python format, a blank in brackets, or capitals that name what goes there.
_PLACEHOLDER = re.compile(
    r"\$[A-Za-z_][A-Za-z0-9_]*"
    r"|%[A-Za-z]|%[A-Za-z_]+%|%\([A-Za-z_]+\)[a-z]"
    r"|\{.*\}|\[.*\]|%7B.*%7D|%3C.*%3E|&lt;.*&gt;"
    r"|[*xX._-]+"
    r"|[A-Z_-]*(?:PASS|PWD|SECRET|TOKEN)[A-Z_-]*"
    r"|[Rr]edacted|REDACTED|[Mm]asked|MASKED|[Yy]our[_-]?[Pp]ass[A-Za-z]*|x-oauth-basic"
)
_REDACTION = re.compile(r"\*\*\*|\.\.\.|…|•|\$[{(]|\{\{|\{[A-Za-z_][A-Za-z0-9_.]*\}")


def _is_placeholder(password: str) -> bool:
    """Whether what stands for a password in a URL is a blank to fill in, or a redaction.

    "password" in small letters is taken at its word: it is a common real default, and the text
    cannot say which is meant. trufflehog's URI detector, too, skips only what begins with "$".
    """
    return bool(_PLACEHOLDER.fullmatch(password) or _REDACTION.search(password))


def _url_passwords(text: str) -> Iterator[Secret]:
    position = 0
    while match := _AUTHORITY.search(text, position):
        authority = match[1]
        # In "one://user:<password>@host,two://…" the run takes the ":" of the next URL.
        position = match.end() - 1
        at = authority.rfind("@")
        colon = authority.find(":", 0, at) if at > 0 else -1
        if colon < 0 or at - colon - 1 < _PASSWORD_AT_LEAST:
            continue
        host = authority[at + 1 : at + 8]
        if not host and text[match.end() : match.end() + 1] != "<":
            continue
        password = authority[colon + 1 : at]
        # "docker://image:tag@sha256:…" is a pinned image, "http://host:3000&mail=a@b" a port.
        if host.startswith(("sha256:", "sha512:")) or _PORT.match(password):
            continue
        if not _is_placeholder(password):
            offset = match.start(1)
            yield Secret(offset + colon + 1, offset + at, _URL_PASSWORD, "")


def _others(text: str) -> Iterator[Secret]:
    """Everything but private keys."""
    for rule in _RULES:
        if rule.needle in text:
            yield from _by_rule(text, rule)
    if "@" in text:
        yield from _url_passwords(text)


def _apart(secrets: Iterable[Secret]) -> list[Secret]:
    """In order, with each overlapping group replaced by one that covers it. The one that begins
    first, or of those the one whose rule stands first, gives kind and prefix."""
    apart: list[Secret] = []
    for secret in sorted(secrets, key=lambda secret: secret.start):
        if not apart or secret.start >= apart[-1].end:
            apart.append(secret)
        elif secret.end > apart[-1].end:
            apart[-1] = replace(apart[-1], end=secret.end)
    return apart


def find(text: str) -> list[Secret]:
    """Return the credentials in `text`, in order and without overlap; an empty list if none.

    Overlapping ones are reported as one that covers them all. `text` may be plain or source code
    or JSON: escapes such as "\\n" are understood where they touch a credential. Raises nothing.
    """
    return _apart(_everywhere(text, lambda plain: (secret for secret, _ in _keys(plain))))


def _keys(text: str) -> Iterator[tuple[Secret, list[_Span]]]:
    return _private_keys(text) if _PRIVATE in text else iter(())


# How a terminal is told to colour, as it is and as JSON and source write it. A tool that marks what
# it has found puts these into the middle of a credential.
_COLOUR = re.compile(
    r"\x1b\[[0-9;:?]{0,40}[ -/]?[@-~]|\\(?:u001[bB]|x1[bB]|033|e)\[[0-9;:?]{0,40}[mK]"
)


def _everywhere(text: str, keys: Callable[[str], Iterable[Secret]]) -> Iterator[Secret]:
    """What is found in a text, and in the same text without its colours, at its places in the text."""
    yield from _others(text)
    yield from keys(text)
    if "[" not in text or not ("\x1b[" in text or "\\" in text) or not _COLOUR.search(text):
        return
    pieces: list[str] = []
    places: list[int] = []
    removed: list[int] = [0]
    position = length = 0
    for match in _COLOUR.finditer(text):
        pieces.append(text[position : match.start()])
        length += match.start() - position
        position = match.end()
        places.append(length)
        removed.append(position - length)
    plain = "".join([*pieces, text[position:]])
    for secret in (*_others(plain), *keys(plain)):
        start = secret.start + removed[bisect.bisect_right(places, secret.start)]
        end = secret.end + removed[bisect.bisect_right(places, secret.end - 1)]
        yield replace(secret, start=start, end=end)


def mask(text: str) -> str:
    """Return `text` with every credential that `find` reports replaced by its visible prefix and
    "…[masked N]", N being the length of the whole credential in characters, prefix included.

    Of a private key every line of the body is replaced by itself, with N its length; the BEGIN and
    END lines and the headers stay. Line breaks are neither added nor removed, and of JSON neither
    quotes nor escapes outside a credential change, so JSON stays JSON with the same structure.
    Masking again changes nothing. Raises nothing.
    """

    def lines(plain: str) -> Iterator[Secret]:
        for _, spans in _keys(plain):
            for start, end in spans:
                yield Secret(start, end, _PRIVATE_KEY, "")

    pieces: list[str] = []
    position = 0
    for secret in _apart(_everywhere(text, lines)):
        pieces += (
            text[position : secret.start],
            f"{secret.prefix}…[masked {secret.end - secret.start}]",
        )
        position = secret.end
    pieces.append(text[position:])
    return "".join(pieces)
