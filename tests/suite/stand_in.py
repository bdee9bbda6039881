"""Stands in for `kernelwright.suite.child`: does what the first words of the source say, at once.

The problem's text is "WORDS" and then the JSON of the row to answer with, in lines of their own.
"""

import faulthandler
import json
import os
import signal
import sys
import time
from pathlib import Path

from kernelwright.suite.child import READY, STACK_FILE, Reporter, end_with_parent

LOG = "begun.txt"


def main() -> None:
    end_with_parent(int(sys.argv[2]))
    reporter = Reporter(int(sys.argv[1]))
    plain = json.load(sys.stdin)
    task = plain["task"]
    words, _, row = task["source"].partition("\n")
    here = Path(task["path"]).parent
    with (here / LOG).open("a") as log:
        log.write(f"{task['problem']} {os.getpid()}\n")
    reporter.stage(READY)
    reporter.stage("work")
    match words.split():
        case ["sleep", seconds]:
            time.sleep(float(seconds))
        case ["wait", name]:
            while not (here / name).exists():
                time.sleep(0.01)
        case ["hang"]:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            with Path(STACK_FILE).open("w") as file:
                faulthandler.dump_traceback(file)
            while True:
                time.sleep(1)
        case ["segfault"]:
            os.kill(os.getpid(), signal.SIGSEGV)
        case ["exit"]:
            os._exit(0)
        case ["flood"]:
            for _ in range(200):
                os.write(1, b"x" * 65536)
        case ["killed", count]:
            if (here / LOG).read_text().count(task["problem"]) <= int(count):
                os.kill(os.getpid(), signal.SIGKILL)
    outcome = {"row": json.loads(row), "details": {"words": words}, "emitted": "emitted\n"}
    reporter.send(outcome=outcome)


main()
