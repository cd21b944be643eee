"""Parses multipart/form-data, in which browsers send files."""

from __future__ import annotations

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from serving.errors import invalid_argument


def read_parts(body: bytes, boundary: bytes, max_parts: int) -> list[tuple[str, bytes]]:
    """(name, content) of each part of a form.

    Raises:
        ServingError: INVALID_ARGUMENT if the body is not a form, or has too many parts.
    """
    parts: list[tuple[str, bytes]] = []
    header_name, header_value, disposition, content = bytearray(), bytearray(), bytearray(), bytearray()

    def begin() -> None:
        disposition.clear()
        content.clear()
        if len(parts) >= max_parts:
            raise invalid_argument(f"The form must have at most {max_parts} parts. Received: more.")

    def end_header() -> None:
        if bytes(header_name).lower() == b"content-disposition":
            disposition[:] = header_value
        header_name.clear()
        header_value.clear()

    def end() -> None:
        name = parse_options_header(bytes(disposition))[1].get(b"name", b"")
        parts.append((name.decode("utf-8", "replace"), bytes(content)))

    complete: list[bool] = []
    callbacks = {
        "on_part_begin": begin,
        "on_part_data": lambda data, start, stop: content.extend(data[start:stop]),
        "on_part_end": end,
        "on_header_field": lambda data, start, stop: header_name.extend(data[start:stop]),
        "on_header_value": lambda data, start, stop: header_value.extend(data[start:stop]),
        "on_header_end": end_header,
        "on_end": lambda: complete.append(True),
    }
    try:
        parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise invalid_argument(f"The body must be a form. Received: {error}") from None
    if not complete:
        raise invalid_argument("The body must be a form. Received: one that ends too early.")
    return parts
