"""Errors as TF Serving has them: a canonical code, and for REST the HTTP status that goes with it."""

from __future__ import annotations

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
_CODE_NUMBERS = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
CODE_NUMBER = {name: number for number, name in enumerate(_CODE_NUMBERS)}


class ServingError(Exception):
    """What a client is told.

    Args:
        code: a canonical code, such as "INVALID_ARGUMENT".
        message: the rule that was broken, and what was received.
        http_status: for REST, where HTTP has a better status than the code's.
    """

    def __init__(self, code: str, message: str, http_status: int | None = None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.http_status = http_status or HTTP_STATUS[code]


def invalid_argument(message: str) -> ServingError:
    """The client sent something wrong."""
    return ServingError("INVALID_ARGUMENT", message)


def from_exception(error: BaseException) -> ServingError:
    """What went wrong while a model ran; TensorFlow's errors keep their code, anything else is INTERNAL."""
    if isinstance(error, ServingError):
        return error
    number = getattr(error, "error_code", None)
    if isinstance(number, int) and 0 < number < len(_CODE_NUMBERS):
        return ServingError(_CODE_NUMBERS[number], clean_message(getattr(error, "message", str(error))))
    return ServingError("INTERNAL", f"{type(error).__name__}: {error}")


def clean_message(message: str) -> str:
    """TensorFlow's message without the graph's node names, which mean nothing to a client."""
    lines = [line for line in message.splitlines() if "{{node" not in line and "Original stack trace" not in line]
    text = "\n".join(lines).split("\nDetected at node")[0].strip().removeprefix("Graph execution error:").strip()
    if text.startswith("assertion failed: [") and text.endswith("]"):
        text = text[len("assertion failed: [") : -1]
    return text or message.strip()
