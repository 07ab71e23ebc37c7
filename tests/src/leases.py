"""Takes a write lease, again and again, on the memory that a process writes images to: who opens it then has to wait.

Its argument is the process; it ends with its standard input, and says how often it tried and how often it had one.
"""

import fcntl
import os
import signal
import sys
import threading

folder = f"/proc/{sys.argv[1]}/fd"
# By this signal it is told that somebody waits.
signal.signal(signal.SIGIO, signal.SIG_IGN)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
print("begun", flush=True)
tried = held = 0
kept = []
while not ended.is_set():
    for number in os.listdir(folder):
        try:
            if "bulkhead-image" not in os.readlink(f"{folder}/{number}"):
                continue
            mine = os.open(f"{folder}/{number}", os.O_RDWR)
        except OSError:
            continue
        tried += 1
        try:
            fcntl.fcntl(mine, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            held += 1
        except OSError:
            os.close(mine)
            continue
        kept.append(mine)
        if len(kept) > 20:
            os.close(kept.pop(0))
print(tried, held)
