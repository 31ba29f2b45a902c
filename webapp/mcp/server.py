"""The tools over stdio, through the official SDK."""

from __future__ import annotations

import logging
import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from webapp.errors import MemoryAppError
from webapp.mcp import arguments, tools
from webapp.settings import Settings

NAME = "memory"
WRITER = "agent"
"""Who wrote an entry when the program that asked does not say its name."""

MAX_WRITER = 60
log = logging.getLogger(__name__)


def serve(settings: Settings, scope: str, version: str) -> None:
    """Answers on standard input and output until that is closed."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    anyio.run(_run, settings, scope, version)


async def _run(settings: Settings, scope: str, version: str) -> None:
    server = make_server(settings, scope, version)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def make_server(
    settings: Settings, scope: str, version: str, introduced: bool = True, writer: str = WRITER
) -> Server[Any]:
    """A server of the tools for one scope. Its instructions are those of this moment; without
    `introduced` it has none. `writer` is who writes where the program that asks does not say its name."""
    known = {tool.name: tool for tool in tools.offered(settings)}
    offered = types.ListToolsResult(tools=[_described(tool) for tool in known.values()])

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return offered

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = known.get(params.name)
        if tool is None:
            text = f"There is no tool “{params.name[:60]}”. Known: {', '.join(known)}."
            return _error(text)
        who = _writer(context) or writer

        def work() -> types.CallToolResult:
            from webapp.mcp.work import Desk, failed
            from webapp.store import Store

            try:
                with Store(settings.db).session() as store:
                    answer = tools.call(tool, Desk(settings, store, scope, who), params.arguments)
            except Exception as error:
                if not isinstance(error, (MemoryAppError, OSError)):
                    log.exception("the tool %s failed", tool.name)
                return _error(failed(error))
            return types.CallToolResult(
                content=[types.TextContent(type="text", text=answer.text)],
                structured_content=dict(answer.data),
            )

        return await anyio.to_thread.run_sync(work)

    told = _instructions(settings, scope) if introduced else ""
    return Server(
        NAME, version=version, instructions=told or None,
        on_list_tools=list_tools, on_call_tool=call_tool,
    )  # fmt: skip


def _instructions(settings: Settings, scope: str) -> str:
    """The nudge and the inventory. A memory that cannot be read keeps no agent from starting."""
    if not settings.db.exists():
        return ""
    from webapp.memory import inject
    from webapp.store import Store

    try:
        with Store(settings.db).session() as store:
            return inject.instructions(store, scope, retrieval=settings.retrieval)
    except (MemoryAppError, OSError) as error:
        log.warning("the memory is not announced: %s", error)
        return ""


def _described(tool: tools.Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=arguments.schema(tool.arguments),
        annotations=types.ToolAnnotations(
            read_only_hint=not tool.writes, destructive_hint=tool.destroys, open_world_hint=False
        ),
    )


def _writer(context: Any) -> str:
    """The name of the program that asks, as it introduced itself; empty if it did not."""
    params = context.session.client_params
    name = " ".join(params.client_info.name.split()) if params is not None else ""
    return name[:MAX_WRITER]


def _error(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
