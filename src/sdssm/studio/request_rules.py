"""Which requests are answered: the checks that keep pages of other sites from reading runs or starting commands."""

from __future__ import annotations

from dataclasses import dataclass
from email.message import Message
from hmac import compare_digest
from http import HTTPStatus

from sdssm.studio.addresses import ServedAddress

#: The header that carries the token of the page.
TOKEN_HEADER = "X-Sdssm-Token"  # noqa: S105  # the name of a header, no secret
#: Bytes that the body of a request may have.
MAX_BODY = 4096


@dataclass(frozen=True)
class Refusal:
    """Why a request is not answered: a status of HTTP and one line."""

    status: HTTPStatus
    message: str


def check_sender(headers: Message, address: ServedAddress, *, is_page: bool) -> Refusal | None:
    """Return why a request does not come from a page of this server or from a program, or None if it does.

    `is_page` is true for a request of the page itself: a link on another site may open it, and reads nothing.
    """
    hosts = headers.get_all("Host", [])
    host = hosts[0] if len(hosts) == 1 else ""
    if not address.is_own_name(host):
        return Refusal(HTTPStatus.MISDIRECTED_REQUEST, f"this server is {address.url}; open that address")
    origin = headers.get("Origin")
    if origin is not None and origin.lower() != f"http://{host.lower()}":
        return Refusal(HTTPStatus.FORBIDDEN, "pages of other sites may not use this server")
    site = headers.get("Sec-Fetch-Site", "none").lower()
    opens_page = is_page and headers.get("Sec-Fetch-Dest", "").lower() == "document"
    if site not in ("same-origin", "none") and not opens_page:
        return Refusal(HTTPStatus.FORBIDDEN, "pages of other sites may not use this server")
    return None


def check_action_headers(headers: Message, token: str) -> Refusal | None:
    """Return why the headers of a request for an action are not valid, or None if they are.

    The token is in the page alone, so that only this page can send it. A body that is declared as JSON makes a browser
    ask first whether another site may send it, and that is refused too.
    """
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        return Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body of an action is application/json")
    if not compare_digest(headers.get(TOKEN_HEADER, "").encode(), token.encode()):
        return Refusal(HTTPStatus.FORBIDDEN, "the page is of an earlier start of this server; load it again")
    length = headers.get("Content-Length", "")
    if not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in headers:
        return Refusal(HTTPStatus.LENGTH_REQUIRED, "an action needs the header Content-Length")
    if len(length) > len(str(MAX_BODY)) or int(length) > MAX_BODY:
        return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body of an action has at most {MAX_BODY} bytes")
    return None
