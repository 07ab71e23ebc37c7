"""Makes small inputs in the formats that Rodinia's programs read, the same on every machine."""

import random


def bfs(folder):
    draw = random.Random(1)
    nodes, edges = 4096, 6
    lines = [str(nodes)]
    lines += [f"{node * edges} {edges}" for node in range(nodes)]
    lines += ["0", str(nodes * edges)]
    lines += [f"{draw.randrange(nodes)} {draw.randrange(1, 10)}" for _ in range(nodes * edges)]
    (folder / "graph.txt").write_text("\n".join(lines) + "\n")


def numbers(path, count, low, high):
    draw = random.Random(path.name)
    path.write_text("".join(f"{draw.uniform(low, high):.6f}\n" for _ in range(count)))


def hotspot(folder):
    numbers(folder / "temp_64", 64 * 64, 320, 340)
    numbers(folder / "power_64", 64 * 64, 0, 0.01)


def hotspot3D(folder):
    numbers(folder / "temp_64x8", 64 * 64 * 8, 320, 340)
    numbers(folder / "power_64x8", 64 * 64 * 8, 0, 0.01)


def nn(folder):
    draw = random.Random(2)
    lines = []
    for number in range(2000):
        place = f"{draw.uniform(7, 63):5.1f} {draw.uniform(0, 358):5.1f}"
        lines.append(f"1990 {number % 12 + 1:2} {number % 28 + 1:2} {number % 4 * 6:2} STORM{number % 9999:<5} {place}  {draw.randrange(10, 160):3} {draw.randrange(900):4}")
    (folder / "storms.db").write_text("".join(line[:48].ljust(48) + "\n" for line in lines))
    (folder / "filelist").write_text(f"{folder / 'storms.db'}\n")


MAKERS = {"bfs": bfs, "hotspot": hotspot, "hotspot3D": hotspot3D, "nn": nn}
