"""One blueprint a page. A view parses, calls and renders."""

from flask import Flask

from webapp.pages import (
    care,
    clients,
    context,
    entries,
    jobs,
    news,
    portable,
    promote,
    search,
    session,
    sessions,
    transcripts,
    trash,
)


def init_app(app: Flask) -> None:
    """Registers every page."""
    modules = (
        search, entries, trash, sessions, session, transcripts, context, promote, care, jobs,
        news, portable, clients,
    )  # fmt: skip
    for module in modules:
        app.register_blueprint(module.blueprint)
