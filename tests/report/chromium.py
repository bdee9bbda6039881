"""A browser to look at pages with: Chromium over two pipes, in the DevTools protocol.

with Chromium(program) as browser:
    browser.show(path, width=400)
    assert browser.ask("document.title") == "a page"
"""

import fcntl
import json
import os
import selectors
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_FROM_US, _TO_US = 3, 4
"""Descriptors of --remote-debugging-pipe."""
_ABOVE = 10
"""Descriptors that are not in the way of those."""
_PATIENCE = 30.0
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # as root in a container it has none
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--remote-debugging-pipe",
)


class Chromium:
    """One page; what scripts throw is kept in `thrown`."""

    def __init__(self, program: str) -> None:
        self.thrown: list[str] = []
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        high = [fcntl.fcntl(it, fcntl.F_DUPFD, _ABOVE) for it in (theirs_in, theirs_out)]

        def arrange() -> None:
            os.dup2(high[0], _FROM_US)
            os.dup2(high[1], _TO_US)

        self._process = subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={self._folder.name}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(_FROM_US, _TO_US),
            preexec_fn=arrange,
        )
        for descriptor in (theirs_in, theirs_out, *high):
            os.close(descriptor)
        self._rest = b""
        self._count = 0
        self._events: list[dict[str, Any]] = []
        self._session = ""
        targets = self._call("Target.getTargets")["targetInfos"]
        page = next(it["targetId"] for it in targets if it["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        self._call("Page.enable")
        self._call("Runtime.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._out)  # it ends when nobody speaks to it any more
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        self._folder.cleanup()

    def show(self, path: Path, *, width: int, scheme: str = "light") -> None:
        """Open a file in a window of `width` pixels, and wait until it is loaded."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._call("Emulation.setEmulatedMedia", features=[feature])
        self._events.clear()
        self._call("Page.navigate", url=path.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._hear()

    def ask(self, expression: str) -> Any:
        """The value of an expression, or of what it promises."""
        answer = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._hear()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _hear(self) -> dict[str, Any]:
        """One message; events are kept."""
        deadline = time.monotonic() + _PATIENCE
        with selectors.DefaultSelector() as selector:
            selector.register(self._in, selectors.EVENT_READ)
            while b"\0" not in self._rest:
                assert selector.select(max(0.0, deadline - time.monotonic())), "no answer"
                data = os.read(self._in, 1 << 20)
                assert data, "Chromium has ended"
                self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self._events.append(message)
            if message["method"] == "Runtime.exceptionThrown":
                self.thrown.append(str(message["params"]["exceptionDetails"]))
        return message
