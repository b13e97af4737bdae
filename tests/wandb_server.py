"""As much of a wandb server as the project needs: runs are made, resumed, stream their rows; a workspace is kept."""

from __future__ import annotations

import base64
import gzip
import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ENTITY = {"id": "e", "name": "lab"}
TIME = "2026-01-01T00:00:00Z"
PROJECT = {"id": "p", "name": "lottery-sweep", "entity": ENTITY}


class Server(ThreadingHTTPServer):
    """`runs`: by id, what was received. `views`: workspaces by name."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.runs: dict[str, dict[str, Any]] = {}
        self.views: dict[str, dict[str, Any]] = {}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed, which is the test: no traceback among the results."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.path == "/graphql":
            asked = json.loads(body)
            name = re.search(r"(?:query|mutation)\s+(\w+)", asked["query"])
            answer = getattr(self, f"on_{name[1]}", lambda _: {}) if name else lambda _: {}
            self._reply({"data": answer(asked.get("variables") or {})})
        elif stream := re.match(r"/files/[^/]+/[^/]+/([^/]+)/file_stream", self.path):
            self._stream(stream[1], json.loads(body))
        else:
            self._reply({})

    def do_GET(self) -> None:
        self._reply({})

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._reply({})

    def _stream(self, run: str, received: dict[str, Any]) -> None:
        kept = self.server.runs[run]
        for name, part in (received.get("files") or {}).items():
            if "history" in name:
                kept["history"] += [json.loads(line) for line in part["content"]]
            elif "summary" in name:
                kept["summary"] = json.loads(part["content"][-1])
        self._reply({"limits": {}, "exitcode": None})

    def _reply(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass

    # What wandb asks ----------------------------------------------------------------------------------------------

    def on_Viewer(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"viewer": {"id": "u", "entity": "lab", "username": "lab", "flags": "{}", "teams": {"edges": []}}}

    def on_GetDefaultEntity(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"viewer": {"id": "u", "entity": "lab"}}

    def on_ServerInfo(self, _: dict[str, Any]) -> dict[str, Any]:
        versions = {"max_cli_version": "0.99.0", "min_cli_version": "0.0.1"}
        return {"serverInfo": {"cliVersionInfo": versions, "latestLocalVersionInfo": None}}

    def on_ServerFeaturesQuery(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"serverInfo": {"features": []}}

    def on_RunResumeStatus(self, asked: dict[str, Any]) -> dict[str, Any]:
        kept, bucket = self.server.runs.get(asked["name"]), None
        if kept:
            bucket = {
                "id": asked["name"], "name": asked["name"], "displayName": asked["name"], "tags": [],
                "summaryMetrics": json.dumps(kept["summary"]), "logLineCount": 0, "eventsLineCount": 0,
                "historyLineCount": len(kept["history"]), "eventsTail": "[]", "wandbConfig": json.dumps({"t": 1}),
                "historyTail": json.dumps([json.dumps(row) for row in kept["history"][-1:]]),
                "config": json.dumps({name: {"value": value} for name, value in kept["config"].items()}),
            }  # fmt: skip
        return {"model": PROJECT | {"bucket": bucket}}

    def on_UpsertBucket(self, asked: dict[str, Any]) -> dict[str, Any]:
        new = asked["name"] not in self.server.runs
        kept = self.server.runs.setdefault(
            asked["name"], {"history": [], "summary": {}, "config": {}, "projects": set()}
        )
        kept["projects"].add(asked["project"])
        if asked.get("config"):
            kept["config"] = {name: part.get("value") for name, part in json.loads(asked["config"]).items()}
        kept |= {name: asked[name] for name in ("groupName", "jobType", "tags") if asked.get(name)}
        bucket = {
            "id": f"b-{asked['name']}", "name": asked["name"], "displayName": asked["name"], "description": "",
            "config": "{}", "sweepName": None, "historyLineCount": len(kept["history"]), "project": PROJECT,
        }  # fmt: skip
        return {"upsertBucket": {"bucket": bucket, "inserted": new}}

    def on_CreateRunFiles(self, asked: dict[str, Any]) -> dict[str, Any]:
        files = [{"name": name, "uploadUrl": f"{self.server.url}/storage/{name}"} for name in asked["files"]]
        return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}

    def on_UpsertView2(self, asked: dict[str, Any]) -> dict[str, Any]:
        new = "id" not in asked
        name = asked["name"] if new else next(n for n, view in self.server.views.items() if view["id"] == asked["id"])
        view = {"id": f"v-{name}", "displayName": asked["displayName"], "spec": asked["spec"]}
        self.server.views[name] = view
        return {"upsertView": {"view": {"id": view["id"], "name": name}, "inserted": new}}

    def on_GetProjects(self, _: dict[str, Any]) -> dict[str, Any]:
        node = {"__typename": "Project", "id": "p", "name": PROJECT["name"], "entityName": "lab", "createdAt": TIME,
                "isBenchmark": False, "user": None}  # fmt: skip
        return {"models": {"pageInfo": {"endCursor": None, "hasNextPage": False}, "edges": [{"node": node}]}}

    def on_upsertView(self, asked: dict[str, Any]) -> dict[str, Any]:  # of a Report
        known = {view["id"]: name for name, view in self.server.views.items()}
        name = known.get(asked["id"], asked["name"])
        given = asked["id"] or base64.b64encode(f"View:{len(known)}".encode()).decode()  # as the address spells it
        project = {"id": "p", "name": asked["projectName"], "entityName": asked["entityName"]}
        parts = {key: asked[key] for key in ("displayName", "description", "spec")}
        self.server.views[name] = {"id": given, "name": name, "project": project, **parts}
        return {
            "upsertView": {"view": self.server.views[name] | {"updatedAt": TIME}, "inserted": name == asked["name"]}
        }

    def on_SpecificReport(self, asked: dict[str, Any]) -> dict[str, Any]:
        found = (view for view in self.server.views.values() if view["id"] == asked["reportId"])
        view = next(found, None)
        return {"view": view and view | {"createdAt": TIME, "updatedAt": TIME}}

    def on_View(self, asked: dict[str, Any]) -> dict[str, Any]:
        found = self.server.views.get(asked["viewName"])
        return {"project": {"allViews": {"edges": [{"node": found}] if found else []}}}

    def on_ArtifactType(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"project": {"artifact": None}}

    def on_CreateArtifact(self, _: dict[str, Any]) -> dict[str, Any]:
        made = {"id": "a", "state": "COMMITTED", "artifactSequence": {"id": "q", "latestArtifact": None}}
        return {"createArtifact": {"artifact": made}}


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
