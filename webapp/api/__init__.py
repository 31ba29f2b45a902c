"""What programs ask over HTTP. Each blueprint answers in the shape that its clients know."""

from flask import Flask

from webapp.api import model


def init_app(app: Flask) -> None:
    """Registers every blueprint."""
    for module in (model,):
        app.register_blueprint(module.blueprint)
