"""The errors that clients see: a canonical code, its HTTP status, and a message without TensorFlow's internals."""

from __future__ import annotations

import re

HTTP_STATUS = {
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 501,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DATA_LOSS": 500,
    "UNAUTHENTICATED": 401,
}
# The dictionary lists the codes in the order of their numbers in gRPC and TensorFlow; 0 is OK.
CODE_NUMBER = {name: number for number, name in enumerate(["OK", *HTTP_STATUS])}
_CODE_NAME = {number: name for name, number in CODE_NUMBER.items() if number}

_NODE_NAME = re.compile(r"\{\{(?:function_)?node [^}]*\}\}\s*")
_FIRST_OF_SEVERAL = re.compile(
    r"\d+ root error\(s\) found\.\s*\(0\)\s*(?:[A-Z_]+: )?(.*?)(?:\n\s*\(1\)|\n\d+ successful|\Z)", re.DOTALL
)


class ServingError(Exception):
    """An error that is sent to the client.

    Args:
        code: a canonical code, such as "INVALID_ARGUMENT".
        message: the violated rule and the received value.
        http_status: the HTTP status if it differs from the usual one of the code.
    """

    def __init__(self, code: str, message: str, http_status: int | None = None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.http_status = http_status or HTTP_STATUS[code]


def invalid_argument(message: str) -> ServingError:
    """A request that can never succeed."""
    return ServingError("INVALID_ARGUMENT", message)


def from_exception(error: BaseException) -> ServingError:
    """Converts any exception. TensorFlow's errors keep their code; everything else becomes INTERNAL."""
    if isinstance(error, ServingError):
        return error
    code = _CODE_NAME.get(getattr(error, "error_code", None))  # type: ignore[arg-type]
    if code is not None:
        return ServingError(code, clean_message(getattr(error, "message", str(error))))
    return ServingError("INTERNAL", f"{type(error).__name__}: {error}")


def clean_message(message: str) -> str:
    """Removes node names, stack traces and repetitions from a message of TensorFlow."""
    several = _FIRST_OF_SEVERAL.search(message)
    text = several.group(1) if several else message
    text = text.split("\nDetected at node")[0].split("\nOriginal stack trace")[0]
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("[[")]
    text = _NODE_NAME.sub("", "\n".join(lines)).strip().removeprefix("Graph execution error:").strip()
    if text.startswith("assertion failed: [") and text.endswith("]"):
        text = text[len("assertion failed: [") : -1]
    return text or message.strip()
