"""What one request may cost, and the errors that say so; the token."""

import hmac
import os
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from fastgcn.errors import FastGCNError, InputError, MissingFileError
from fastgcn.files import open_regular

TOKEN = "FASTGCN_TOKEN"
_SHORTEST = 16  # characters of a token


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one request.

    Attributes:
        body: bytes of a body.
        nodes: nodes that are asked for, or new ones.
        edges: new edges.
        field: stored edges that a computation may read: those of the neighbourhood of the nodes.
        seconds: from the first byte to the answer.
        queue: requests that wait for each of the two threads that compute.
    """

    body: int = 8 << 20
    nodes: int = 10_000
    edges: int = 100_000
    field: int = 20_000_000
    seconds: float = 30.0
    queue: int = 64

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class RequestError(FastGCNError):
    """A request that is refused, with its HTTP status."""

    def __init__(self, status: int, message: str, retry: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry = status, retry


def check_count(count: int, most: int, what: str) -> None:
    """Refuse more than `most` of something."""
    if count > most:
        raise RequestError(
            413, f"a request may have at most {most:,} {what}, got {count:,}; send several"
        )


def read_token(file: Path | None) -> str | None:
    """The token of a file, or else of the environment; None if there is none."""
    if file is None:
        token = os.environ.get(TOKEN)
        where = TOKEN
    else:
        where = str(file)
        try:
            with open_regular(file) as opened:
                token = opened.read(1 << 12).decode().strip()
        except FileNotFoundError:
            raise MissingFileError(f"there is no file {file} with a token") from None
        except (ValueError, OSError) as error:
            raise InputError(f"{file} cannot be read as a token: {error}") from None
    if token is None:
        return None
    if len(token) < _SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(
            f"the token in {where} must be at least {_SHORTEST} printable ASCII characters without "
            "spaces; `python -c 'import secrets; print(secrets.token_urlsafe())'` makes one"
        )
    return token


def check_exposure(host: str, token: str | None) -> None:
    """Refuse to be reached from other machines without a token."""
    if token is None and not is_loopback(host):
        raise InputError(
            f"--host {host} can be reached from other machines, which needs a token: set {TOKEN}, "
            "or name a file with --token-file"
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def same(given: str, token: str) -> bool:
    """Compare tokens in the same time, wherever they differ."""
    return hmac.compare_digest(given.encode(), token.encode())
