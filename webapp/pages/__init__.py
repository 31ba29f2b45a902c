"""One blueprint a page. A view parses, calls and renders."""

from flask import Flask

from webapp.pages import care, entries, jobs, search, session, transcripts, trash


def init_app(app: Flask) -> None:
    """Registers every page."""
    for module in (search, entries, trash, transcripts, session, care, jobs):
        app.register_blueprint(module.blueprint)
