"""Entry of a child process: `python -m kernelwright.worker.roles.child SOCKET CONFINEMENT MODULES`.

It answers requests over the socket it inherited until that closes. Everything that can crash, hang
or lie runs here; the parent only reads JSON.
"""

import importlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kernelwright.errors import KernelwrightError
from kernelwright.verify.records import from_plain, to_plain
from kernelwright.worker.process.importing import quick_imports
from kernelwright.worker.process.protocol import Channel, ChannelClosedError
from kernelwright.worker.sandbox.confining import Confinement, Protection, Started, confine
from kernelwright.worker.sandbox.warden import fork_under_warden
from kernelwright.worker.timeline import Timeline

if TYPE_CHECKING:
    from kernelwright.worker.roles.table import Host


def main(arguments: list[str]) -> None:
    """Serve the parent behind the descriptor named in `arguments`, within its confinement.

    Modules that are named are imported first.
    """
    timeline = Timeline()
    timeline.mark("process")
    confinement = from_plain(Confinement, json.loads(arguments[1]))
    fork_under_warden(confinement)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends its children.
    descriptor = int(arguments[0])
    connection = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - a compiler would keep it open
    channel = Channel(connection)
    try:
        protections = confine(confinement)
        timeline.mark("sandbox")
        _import(arguments[2:])
        _serve(channel, protections, timeline)
    except ChannelClosedError:
        os._exit(0)  # The parent has gone: nothing of a candidate's should run at exit.


def _import(modules: Sequence[str]) -> None:
    """What is missing is told to whoever asks for something that needs it."""
    with quick_imports():
        for name in modules:
            with suppress(Exception):
                importlib.import_module(name)


def _serve(channel: Channel, protections: tuple[Protection, ...], timeline: Timeline) -> None:
    request = channel.receive()

    def start() -> "Host":
        # torch is imported here and not above: within the first request's timeout, and so that
        # what goes wrong in it becomes an answer.
        from kernelwright.worker.roles.table import make_host

        timeline.mark("imports")
        return make_host(request["body"], timeline)

    def announce(_: "Host") -> Any:
        return to_plain(replace(started, moments=timeline.moments))

    # Said before any code of a candidate's runs here, so it can be believed.
    started = Started(pid=os.getpid(), protections=protections)
    host = _reply(channel, request, start, announce)
    if host is not None:
        host.afterwards()
    while host is not None:
        request = channel.receive()
        answer = partial(host.answer, request["operation"], request["body"])
        _reply(channel, request, answer, announce=to_plain)


Result = TypeVar("Result")


def _reply(
    channel: Channel,
    request: dict[str, Any],
    work: Callable[[], Result],
    announce: Callable[[Result], Any],
) -> Result | None:
    """Do the work and answer with what it gave or raised; None if it raised."""
    head = {"id": request["id"], "nonce": request["nonce"]}
    try:
        result = work()
        message = head | {"body": announce(result)}
    except Exception as error:
        traceback.print_exc()  # goes to the log that the parent keeps
        channel.send(head | {"error": _describe(error)})
        return None
    channel.send(message)
    return result


def _describe(error: Exception) -> dict[str, str | None]:
    match error:
        case KernelwrightError(message=message, location=location, next_step=next_step):
            return {"message": message, "location": location, "next_step": next_step}
    return {"message": f"{type(error).__name__}: {error}", "location": None, "next_step": None}


if __name__ == "__main__":
    main(sys.argv[1:])
