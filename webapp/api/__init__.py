"""What programs ask over HTTP. Each blueprint answers in the shape that its clients know."""

from flask import Flask


def init_app(app: Flask) -> None:
    """Registers every blueprint."""
