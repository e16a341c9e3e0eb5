"""Hosts that stand before another one: to give it another card, or to write down what is said."""

import json
from pathlib import Path
from typing import Any

import httpx

SECONDS_MAX = 120
_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "accept-encoding"}


class Front:
    """Passes everything on, and remembers it."""

    def __init__(self, behind: str, agent: str | None = None) -> None:
        """Stand before `behind`; with `agent`, a relay that seems to be that agent.

        The TCK of A2A 0.3 knows no agents below a path.
        """
        self._agent = agent
        self._client = httpx.AsyncClient(base_url=behind, timeout=SECONDS_MAX)
        self.said: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        path = scope["path"]
        if self._agent is not None and not path.startswith("/agents/"):
            path = f"/agents/{self._agent}{path}"
        headers = [(k, v) for k, v in scope["headers"] if k.decode() not in _HOP]
        query = scope["query_string"].decode()
        url = f"{path}?{query}" if query else path
        request = self._client.build_request(scope["method"], url, content=body, headers=headers)
        answer = await self._client.send(request, stream=True)
        told = b""
        try:
            kept = [(k, v) for k, v in answer.headers.raw if k.decode().lower() not in _HOP]
            start = {"type": "http.response.start", "status": answer.status_code, "headers": kept}
            await send(start)
            async for chunk in answer.aiter_raw():
                told += chunk
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await answer.aclose()
            self.said.append(
                {
                    "method": scope["method"],
                    "path": path,
                    "headers": {
                        k.decode(): v.decode()
                        for k, v in headers
                        if k in {b"content-type", b"accept"} or k.startswith((b"mcp-", b"a2a-"))
                    },
                    "body": body.decode(),
                    "status": answer.status_code,
                    "answer": told.decode(errors="replace"),
                }
            )


def write(path: Path, **said: list[dict[str, Any]]) -> None:
    """Write down what was said."""
    path.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
