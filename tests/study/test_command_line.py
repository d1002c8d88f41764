import signal
import subprocess
import sys

from helpers.places import PATIENCE_SECONDS, ROOT

COMMAND = """
import atexit, time
from study.command_line import guarded

def main():
    print("runs", flush=True)
    time.sleep(1000)

atexit.register(lambda: (print("ends", flush=True), time.sleep(1000)))
raise SystemExit(guarded("study.launch", main))
"""


def test_a_second_interrupt_ends_a_command_that_is_ending_without_a_traceback():
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        for line in ("runs\n", "ends\n"):
            assert process.stdout.readline() == line
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE_SECONDS) == 1
        assert process.stderr.read() == "study.launch: interrupted\n"
