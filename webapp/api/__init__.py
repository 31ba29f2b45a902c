"""What programs ask over HTTP. Each blueprint answers in the shape that its clients know."""

from flask import Flask

from webapp.api import inject, model


def init_app(app: Flask) -> None:
    """Registers every blueprint."""
    for module in (inject, model):
        app.register_blueprint(module.blueprint)
