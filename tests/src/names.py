"""Looks every symbol of the table up in the library, and calls those that are refused, with room for answers.

Its arguments are the library and the table, as `bulkhead coverage --json` prints it. It prints what is not as it should be.
"""

import ctypes
import json
import sys

library = ctypes.CDLL(sys.argv[1])
with open(sys.argv[2], encoding="utf-8") as file:
    table = json.load(file)["symbols"]
for row in table:
    symbol = row["symbol"]
    try:
        function = getattr(library, symbol)
    except AttributeError:
        print(symbol, "is not exported")
        continue
    if row["state"] == "served":
        continue
    room = ctypes.create_string_buffer(b"\x5a" * 256, 256)
    for _ in range(2):
        code = function(room, room, room, room, room, room)
        if code != 801:
            print(symbol, "answers", code)
    if room.raw != b"\x5a" * 256:
        print(symbol, "wrote to its arguments")
