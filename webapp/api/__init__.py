"""What programs ask over HTTP. Each blueprint answers in the shape that its clients know."""

from flask import Flask

from webapp.api import inject


def init_app(app: Flask) -> None:
    """Registers every blueprint."""
    app.register_blueprint(inject.blueprint)
