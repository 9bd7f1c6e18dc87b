"""--open: the server that hands a trace to Perfetto's page, asked by hand and by a real browser."""

import contextlib
from contextlib import contextmanager
import http.client
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import shutil
import socket
import subprocess
import threading
from urllib.parse import quote

import pytest
from reader_helpers import GALLERY
from trace_reader import cli
from trace_reader.commands import open_perfetto as serve

TRACE = GALLERY / "01_matmul_add" / "64_bf16_cold_eager.json"
PAGE = "https://ui.perfetto.dev"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def serving(origin=PAGE, timeout_s=60.0, trace=TRACE):
    """The server in a thread, on a free port; yields its port and a list that will hold what it returned."""
    links, results, listening = [], [], threading.Event()

    def ready(link):
        links.append(link)
        listening.set()

    def run():
        results.append(serve.serve(trace, origin=origin, port=0, timeout_s=timeout_s, ready=ready))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert listening.wait(10)
    start, _, rest = links[0].partition("127.0.0.1:")
    assert start == "https://ui.perfetto.dev/#!/?url=http://" and rest.endswith(f"/{quote(trace.name)}")
    yield int(rest.split("/")[0]), results
    thread.join(timeout_s + 5)
    assert not thread.is_alive()


def ask(port, method="GET", path="/64_bf16_cold_eager.json", origin=PAGE, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers={**({"Origin": origin} if origin else {}), **headers})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, dict(response.getheaders()), body


def test_the_page_gets_the_file_and_then_the_server_ends():
    with serving() as (port, results):
        status, headers, body = ask(port)
        assert (status, body) == (200, TRACE.read_bytes())
        assert headers["Access-Control-Allow-Origin"] == PAGE
    assert results == [True]


@pytest.mark.parametrize("asked", ["/a%20(1)%20%C3%BC.json", "/a%20%281%29%20%c3%bc.json"])
def test_a_name_that_browsers_write_in_their_own_ways(asked, tmp_path):
    trace = tmp_path / "a (1) ü.json"
    trace.write_bytes(TRACE.read_bytes())
    with serving(trace=trace) as (port, results):
        assert ask(port, path=asked)[0] == 200
    assert results == [True]


def test_the_browsers_question_before_it_lets_a_page_reach_the_local_network():
    with serving(timeout_s=1) as (port, results):
        asked = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Private-Network": "true"}
        status, headers, _ = ask(port, "OPTIONS", **asked)
        assert (status, headers["Access-Control-Allow-Private-Network"]) == (204, "true")
        assert headers["Access-Control-Allow-Origin"] == PAGE
    assert results == [False]  # a question is no download


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"origin": None}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "https://ui.perfetto.dev.evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"Host": "evil.example"}, 403),  # a name that was made to point here
        ({"path": "/"}, 404),
        ({"path": "/../conftest.py"}, 404),
        ({"path": "/64_bf16_warm_eager.json"}, 404),
        ({"method": "POST"}, 501),
    ],
)
def test_anything_else_is_refused(asked, status):
    with serving(timeout_s=0.5) as (port, results):
        got, headers, body = ask(port, **asked)
        assert got == status and b"traceEvents" not in body
        if "origin" in asked:
            assert "Access-Control-Allow-Origin" not in headers
    assert results == [False]


def test_the_file_comes_with_its_length_and_is_not_kept_and_nothing_is_logged(capfd):
    with serving() as (port, _):
        _, headers, body = ask(port)
        assert int(headers["Content-Length"]) == len(body) and headers["Cache-Control"] == "no-store"
    assert capfd.readouterr() == ("", "")


def test_it_listens_on_the_loopback_address_alone():
    with serving(timeout_s=0.5) as (port, results), pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=5)
    assert results == [False]


@pytest.mark.parametrize("origin", ["https://evil.example", None])
def test_a_preflight_of_another_origin_is_refused(origin):
    with serving(timeout_s=0.5) as (port, _):
        status, headers, _ = ask(port, "OPTIONS", origin=origin)
        assert status == 403 and "Access-Control-Allow-Private-Network" not in headers


def test_a_download_that_is_broken_off_does_not_count(tmp_path):
    trace = tmp_path / "large.json"
    trace.write_bytes(b"x" * 30_000_000)  # more than the system's buffers hold
    with serving(timeout_s=1.5, trace=trace) as (port, results), socket.create_connection(("127.0.0.1", port)) as connection:
        request = f"GET /large.json HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: {PAGE}\r\n\r\n"
        connection.sendall(request.encode())
        assert connection.recv(100).startswith(b"HTTP/1.0 200")
    assert results == [False]


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 40, b"x" * 70_000, b"GET /" + b"y" * 70_000])
def test_what_is_no_request_prints_nothing(capfd, sent):
    """A browser that tries https first, and whatever else finds the port."""
    with serving() as (port, _):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                while client.recv(65536):
                    pass
        assert ask(port)[0] == 200
    assert capfd.readouterr() == ("", "")


def test_a_connection_that_sends_nothing_is_closed(monkeypatch):
    monkeypatch.setattr(serve, "IDLE_S", 0.2)
    with serving(timeout_s=3) as (port, _), socket.create_connection(("127.0.0.1", port), timeout=2.5) as connection:
        assert connection.recv(1) == b""


@pytest.mark.parametrize(
    ("platform", "env", "opened"),
    [
        ("linux", {}, 0),
        ("linux", {"DISPLAY": ":0"}, 1),
        ("linux", {"WAYLAND_DISPLAY": "w"}, 1),
        ("darwin", {}, 1),
        ("win32", {}, 1),
    ],
)
def test_a_browser_is_opened_where_there_is_a_screen(platform, env, opened, monkeypatch):
    links: list[str] = []
    monkeypatch.setattr(serve.webbrowser, "open", links.append)
    monkeypatch.setattr(serve.sys, "platform", platform)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    serve.open_browser("https://x")
    assert links == ["https://x"] * opened


def test_no_request_says_what_helps(monkeypatch, capsys):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr(serve, "TIMEOUT_S", 0.1)
    monkeypatch.setattr(serve.serve, "__kwdefaults__", {**serve.serve.__kwdefaults__, "port": port, "timeout_s": 0.1})
    monkeypatch.setattr(serve, "open_browser", lambda link: None)
    assert cli.main([str(TRACE), "--open"]) == 1
    out = capsys.readouterr().out
    assert f"open https://ui.perfetto.dev/#!/?url=http://127.0.0.1:{port}/64_bf16_cold_eager.json\n" in out
    assert "nothing is uploaded" in out and "no request came" in out
    assert "Safari" in out and "ssh -L 9001:127.0.0.1:9001" in out and "drag the file" in out


def test_a_port_that_is_taken_is_one_line(monkeypatch, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setattr(serve.serve, "__kwdefaults__", {**serve.serve.__kwdefaults__, "port": other.getsockname()[1]})
        assert cli.main([str(TRACE), "--open"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: port ") and err.count("\n") == 1
    assert "is taken (Address already in use)" in err and "drag the file" in err


def test_the_address_is_the_only_one_that_the_page_may_fetch_from():
    assert (serve.ORIGIN, serve.PORT) == ("https://ui.perfetto.dev", 9001)


SCRIPT = """<!doctype html><body>waiting<script>
fetch("URL").then(answer => answer.text())
  .then(text => { document.body.textContent = "got " + JSON.parse(text).traceEvents.length + " events"; })
  .catch(error => { document.body.textContent = "refused: " + error; });
</script></body>"""


@contextmanager
def page():
    """A page on a loopback origin that fetches the address that it is given."""

    class Server(ThreadingHTTPServer):
        fetches = ""

    server = Server(("127.0.0.1", 0), BaseHTTPRequestHandler)

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            body = SCRIPT.replace("URL", server.fetches).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server.RequestHandlerClass = Page
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def browse(url, profile):
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={profile}"]
    done = subprocess.run(
        [*command, "--virtual-time-budget=8000", "--dump-dom", url], capture_output=True, text=True, timeout=120
    )
    return done.stdout


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian's package chromium), which is not installed here")
def test_a_real_browser_fetches_the_trace_for_that_page_and_for_no_other(tmp_path):
    with page() as server, page() as foreign:
        with serving(origin=f"http://127.0.0.1:{server.server_port}", timeout_s=90) as (port, results):
            server.fetches = foreign.fetches = f"http://127.0.0.1:{port}/64_bf16_cold_eager.json"
            refused = browse(f"http://127.0.0.1:{foreign.server_port}/", tmp_path / "foreign")
            assert "refused: TypeError" in refused and results == []
            assert "got 105 events" in browse(f"http://127.0.0.1:{server.server_port}/", tmp_path / "page")
        assert results == [True]
