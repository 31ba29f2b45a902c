"""OpenCode's memory: entries, transcripts, context. `create_app` is the only wiring."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flask import Flask

    from webapp.settings import Settings

__version__ = "0.1.0"


def _folder(name: str) -> Path:
    """Templates and static files: inside the package in a wheel, beside it in a checkout."""
    inside = Path(__file__).parent / name
    return inside if inside.is_dir() else Path(__file__).parent.parent / name


def create_app(settings: Settings) -> Flask:
    """Builds the web application on the given settings."""
    from flask import Flask
    from jinja2 import StrictUndefined

    from webapp import api, pages
    from webapp.mcp import http as mcp
    from webapp.memory.reflect import Reflector
    from webapp.store import Store
    from webapp.transcripts.watch import Watcher
    from webapp.web import current, filters, guards, render
    from webapp.web.jobs import Jobs

    app = Flask(
        __name__, template_folder=str(_folder("templates")), static_folder=str(_folder("static"))
    )
    app.config.update(
        # Only toasts are kept in the session, so a key that is new at each start is enough.
        SECRET_KEY=os.urandom(32),
        SESSION_COOKIE_NAME=f"opencode_memory_{settings.port}",
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_COOKIE_HTTPONLY=True,
        MAX_CONTENT_LENGTH=2 * 1024 * 1024,
        MAX_FORM_MEMORY_SIZE=2 * 1024 * 1024,
        SEND_FILE_MAX_AGE_DEFAULT=3600,
    )
    app.jinja_env.undefined = StrictUndefined
    app.jinja_env.trim_blocks = True
    app.jinja_env.lstrip_blocks = True
    store = Store(settings.db)
    app.extensions[current.KEY] = current.Services(
        settings, store, Jobs(), Watcher(store, settings), Reflector(store, settings)
    )
    guards.init_app(app, settings)
    current.init_app(app)
    render.init_app(app)
    filters.init_app(app)
    pages.init_app(app)
    api.init_app(app)
    mcp.init_app(app, __version__)
    app.jinja_env.globals["version"] = __version__
    return app
