"""Hand one trace to Perfetto's page in the browser, from this machine: nothing is uploaded.

The page may fetch from http://127.0.0.1:9001 and from no other local address: its content policy says so. Answered is only
that page's origin, only for that file, only on the loopback.
"""

from collections.abc import Callable
import contextlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import os
from pathlib import Path
import shutil
import sys
import threading
from urllib.parse import quote, unquote
import webbrowser

from trace_reader.commands.load_with_progress import load_with_progress

ORIGIN = "https://ui.perfetto.dev"
PORT = 9001
TIMEOUT_S = 120.0
IDLE_S = 30.0  # for a connection that sends nothing
NO_REQUEST = f"""no request came. What helps:
  drag the file into {ORIGIN}, which needs no server
  Safari does not let the page fetch from this machine: take another browser
  Chrome asks whether the page may reach the local network: allow it (after a denial, in the site's settings)
  is this machine a remote one? On yours: ssh -L {PORT}:127.0.0.1:{PORT} <this machine>, then open the link there"""


class PortTakenError(Exception):
    """Another program listens on the port."""


def _handler(path: Path, origin: str, fetched: threading.Event) -> type[BaseHTTPRequestHandler]:
    """Return what answers requests: with the file, to this origin alone; sets `fetched` once it was sent whole."""

    class Handler(BaseHTTPRequestHandler):
        timeout = IDLE_S

        def do_OPTIONS(self) -> None:  # asked by the browser before it lets the page fetch from a local address
            if self.allowed():
                self.send_response(204)
                self.send_header("Access-Control-Allow-Methods", "GET")
                self.send_header("Access-Control-Allow-Headers", "*")
                if self.headers.get("Access-Control-Request-Private-Network") == "true":
                    self.send_header("Access-Control-Allow-Private-Network", "true")
                self.end_headers()

        def do_GET(self) -> None:
            if not self.allowed():
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(path.stat().st_size))
            self.end_headers()
            with contextlib.suppress(ConnectionError), path.open("rb") as file:
                shutil.copyfileobj(file, self.wfile)
                self.wfile.flush()
                fetched.set()

        def allowed(self) -> bool:
            """Return whether it is the page that asks, for the file, by this address; if not, the answer is sent."""
            if self.headers.get("Origin") != origin or self.headers.get("Host") != f"127.0.0.1:{self.server.server_port}":  # type: ignore[attr-defined]
                self.send_error(403)
            elif unquote(self.path) != f"/{path.name}":
                self.send_error(404)
            else:
                return True
            return False

        def end_headers(self) -> None:
            if self.headers.get("Origin") == origin:
                self.send_header("Access-Control-Allow-Origin", origin)
                self.send_header("Vary", "Origin")
            self.send_header("Cache-Control", "no-store")
            super().end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A request that is none, or a client that went away, is not the user's concern."""


def serve(
    path: Path,
    *,
    origin: str = ORIGIN,
    port: int = PORT,
    timeout_s: float = TIMEOUT_S,
    ready: Callable[[str], None] = lambda link: None,
) -> bool:
    """Serve the file to `origin` until it was fetched whole (True) or `timeout_s` passed (False).

    `ready` is called with the link that opens it, once the server listens. Raises PortTakenError.
    """
    fetched = threading.Event()
    try:
        server = _Server(("127.0.0.1", port), _handler(path, origin, fetched))
    except OSError as error:
        raise PortTakenError(
            f"port {port} is taken ({error.strerror}), and Perfetto's page can fetch from no other: end the program that "
            f"listens there (another --open?), or drag the file into {ORIGIN}"
        ) from error
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            ready(f"{ORIGIN}/#!/?url=http://127.0.0.1:{server.server_port}/{quote(path.name)}")
            return fetched.wait(timeout_s)
        finally:
            server.shutdown()
            thread.join()


def open_browser(link: str) -> None:
    """Open the link where there is a screen to show a browser on."""
    if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(link)


def run(path: str) -> int:
    """Serve the trace to Perfetto's page; 0: it was fetched, 1: it was not. Raises TraceError."""
    load_with_progress(path)  # a file that cannot be read is said here, not by the page

    def ready(link: str) -> None:
        print(
            f"open {link}\nwaiting up to {TIMEOUT_S:.0f} s for your browser to fetch the trace; nothing is uploaded",
            flush=True,
        )
        open_browser(link)

    try:
        fetched = serve(Path(path), ready=ready)
    except PortTakenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("the browser has it" if fetched else NO_REQUEST)
    return 0 if fetched else 1
