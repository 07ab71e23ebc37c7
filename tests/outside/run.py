#!/usr/bin/env python3
"""Builds and runs CUDA programs that others wrote, on Bulkhead and natively where there is a GPU.

The repository has none of their code. The programs come from checkouts in one folder (`--checkouts`), a folder a
suite; tests/outside/SUITE.toml says which programs there are, how each is built and run, and what counts as right.
docs/OUTSIDE.md describes those files and the outcomes. Python 3.11 and its standard library suffice.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import glob
import itertools
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

try:
    import tomllib
except ImportError:
    sys.exit("outside: error: Python 3.11 or newer is needed (its standard library reads TOML)")

sys.dont_write_bytecode = True
import rodinia_data
import times

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
BUILD_SECONDS_MAX = 1200
SERVE_SECONDS_MAX = 60
OUTPUT_BYTES_MAX = 4 << 20
# Larger inputs of programs that are packed as sources stay behind.
PACKED_BYTES_MAX = 2 << 20
SOURCES = ["*.cu", "*.cpp", "*.c"]
# No program reads these when it runs, so --pack leaves them out.
NOT_READ = {".cu", ".cpp", ".c", ".json", ".md", ".txt", ".doc", ".docx", ".pdf", ".gif", ".docset", ".sln", ".vcxproj"}
# CUDA's samples end with this where they need what the device lacks.
EXIT_WAIVED = 2
# What Bulkhead prints where it refuses something, apart from mistakes of the program itself.
REFUSAL = re.compile(r"^bulkhead: (?!.* was ended by signal)(?P<why>.*(\n.*:\d+:\d+: .*)?)$", re.MULTILINE)
# Which of those lines tell of a refusal, where the program goes on.
REFUSES = re.compile(r"refuse|not support|does not|no kernel of the image")
# CUDA's own words for what is not there, as programs print them.
NOT_THERE = re.compile(
    r"^.*(code=(36|801)\b|API error = 0*(36|801)\b|cudaErrorNotSupported|operation not supported).*$", re.MULTILINE)
# How programs say that they want arguments, as they end with an error.
USAGE = re.compile(r"^\W*(error\W+)?usage\s*:.*$", re.MULTILINE | re.IGNORECASE)
OUTCOMES = ["right", "built", "ended", "wrong", "refused", "waived", "usage", "crash", "out of time", "not built", "absent"]


@dataclasses.dataclass
class Program:
    """One program of a suite, as its table describes it."""

    suite: str
    name: str
    root: pathlib.Path
    folder: pathlib.Path
    table: dict
    defaults: dict
    data: pathlib.Path

    @property
    def path(self):
        return f"{self.suite}/{self.name}"

    def get(self, key, otherwise=None):
        return self.table.get(key, self.defaults.get(key, otherwise))

    def words(self, key):
        """A list of strings: the suite's, then the program's own."""
        return [self.filled(word) for word in self.defaults.get(key, []) + self.table.get(key, [])]

    def filled(self, word):
        places = {"{root}": self.root, "{folder}": self.folder, "{shared}": HERE / "include", "{tests}": HERE.parent, "{data}": self.data}
        for name, place in places.items():
            word = word.replace(name, str(place))
        return word

    def sources(self):
        patterns = self.table.get("sources", self.defaults.get("sources", SOURCES))
        found = []
        for pattern in patterns:
            # A pattern may lead to another folder, so that what programs share is named once.
            base, rest = (self.root, pattern[len("{root}/"):]) if pattern.startswith("{root}/") else (self.folder, pattern)
            found += sorted(base.glob(rest))
        left_out = {self.folder / name for name in self.table.get("without", [])}
        return [source for source in dict.fromkeys(found) if source not in left_out]


@dataclasses.dataclass
class Ran:
    """What became of one process."""

    status: int | None
    output: str
    seconds: float


def say(text):
    print(f"outside: {text}", file=sys.stderr, flush=True)


def fail(text):
    sys.exit(f"outside: error: {text}")


def load(suite, checkouts, build):
    """The programs of a suite."""
    with open(HERE / f"{suite}.toml", "rb") as file:
        table = tomllib.load(file)
    own = table.get("own")
    root = HERE / own if own else checkouts / table["checkout"] if checkouts else None
    defaults = table.get("all", {})
    programs = []
    entries = {**folders(root, table.get("folders")), **table["programs"]}
    for name, entry in entries.items():
        folder = root / entry.get("in", defaults.get("in", ".").replace("{name}", name)) if root else None
        programs.append(Program(suite, name, root, folder, entry, defaults, build / "data"))
    return programs


def suite_of(root, build):
    """A suite that has no table: each `*.cu` below `root` that has a `main` is a program, by the table `any.toml`.

    What is left out for lack of one is told on standard error.
    """
    with open(HERE / "any.toml", "rb") as file:
        defaults = tomllib.load(file)["all"]
    programs, without = [], []
    for source in sorted(root.rglob("*.cu")):
        if not re.search(r"\bmain\s*\(", source.read_text(errors="replace")):
            without.append(str(source.relative_to(root)))
            continue
        name = "-".join(source.relative_to(root).with_suffix("").parts).replace(" ", "_")
        entry = {"sources": [glob.escape(source.name)], "found": True}
        programs.append(Program(root.name, name, root, source.parent, entry, defaults, build / "data"))
    if without:
        more = f" and {len(without) - 5} more" if len(without) > 5 else ""
        print(f"outside: {root.name}: left out, as they have no main: {', '.join(without[:5])}{more}", file=sys.stderr)
    return programs


def folders(root, rule):
    """A program for each folder that has a makefile, where a suite is so made."""
    if not rule or not root:
        return {}
    entries = {}
    before, after = rule["pattern"].split("*")
    for folder in sorted(root.glob(rule["pattern"])):
        makefile = folder / "Makefile"
        if not makefile.is_file() or re.search(rule["without_libraries"], makefile.read_text(errors="replace")):
            continue
        place = str(folder.relative_to(root))
        entries[place.removeprefix(before).removesuffix(after)] = {"in": place}
    return entries


def make_data(folder, names):
    """Inputs for programs whose own are not beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in sorted(names):
        rodinia_data.MAKERS[name](folder)


def run(command, folder, seconds, environment=None):
    """Runs a command in a process group of its own, all of which ends with it."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env=environment, start_new_session=True)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end(process)
        taken = time.monotonic() - begun
        output.seek(0)
        text = output.read(OUTPUT_BYTES_MAX).decode("utf-8", "replace")
    return Ran(status, text, taken)


@contextlib.contextmanager
def serving(options):
    """With `--served` a kernel that serves, for as long as programs run: one of this run's own unless BULKHEAD_SOCKET names
    one."""
    if not options.served or "BULKHEAD_SOCKET" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder) / "log", "wb") as log:
        command = [str(options.bulkhead), "serve", "--backend", options.backend, "--runtime-directory", folder]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            socket = pathlib.Path(folder) / "kernel.sock"
            until = time.monotonic() + SERVE_SECONDS_MAX
            while not socket.exists():
                if process.poll() is not None or time.monotonic() > until:
                    fail(f"bulkhead serve did not start: {(pathlib.Path(folder) / 'log').read_text()[-500:]}")
                time.sleep(0.05)
            os.environ["BULKHEAD_SOCKET"] = str(socket)
            yield
        finally:
            os.environ.pop("BULKHEAD_SOCKET", None)
            end(process)


def end(process):
    """Ends whatever is left of a command's process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


class Runner:
    """What all programs of one run share."""

    def __init__(self, options):
        self.options = options
        self.lock = threading.Lock()
        self.done = 0
        self.total = 0
        self.begun = time.monotonic()
        self.native = pathlib.Path("/dev/nvidia0").exists() and not options.no_native
        self.architecture = options.architecture
        self.toolchain = options.toolchain

    def report(self, result):
        with self.lock:
            self.done += 1
            native = f", natively {result['native']['outcome']}" if result.get("native") else ""
            why = f": {result['why']}" if result["why"] else ""
            times = f"built in {result['build_s']:.1f} s, ran {result['seconds']:.1f} s"
            say(f"[{self.done}/{self.total}] {result['program']}: {result['outcome']}{native} ({times}){why}")

    def one(self, program):
        """Builds and runs one program. Never raises."""
        try:
            late = self.options.within and time.monotonic() - self.begun > self.options.within
            result = outcome("absent", "no time was left") if late else self.build_and_run(program)
        except OSError as error:
            result = outcome("not built", str(error))
        result = {"program": program.path, "build_s": 0.0, "seconds": 0.0, **result}
        self.report(result)
        return result

    def build_and_run(self, program):
        if program.root is None:
            return outcome("absent", "its checkout is not here: name the folder of the checkouts with --checkouts")
        if not program.folder.is_dir():
            return outcome("absent", f"no folder {program.folder}")
        home = self.options.build / f"compute_{self.architecture}" / program.suite / program.name
        run_folder = home / "run"
        home.mkdir(parents=True, exist_ok=True)
        begun = time.monotonic()
        why = self.build(program, home)
        built_s = time.monotonic() - begun
        if why:
            return {**outcome("not built", why), "build_s": built_s}
        if self.options.build_only:
            return {**outcome("built"), "build_s": built_s}
        result = {"build_s": built_s}
        sound = {"right", "ended"}
        if self.options.times:
            return {**result, **self.timed(program, home, run_folder)}
        worst = None
        for _ in range(self.options.repeat):
            folder = self.prepare(program, home, run_folder)
            ran = self.on_bulkhead(program, home, folder)
            judged = {**judge(program, ran), "seconds": ran.seconds}
            log = home / "output.txt"
            log.write_text(ran.output)
            judged["log"] = str(log)
            if worst is None or judged["outcome"] not in sound:
                worst = judged
            if judged["outcome"] not in sound:
                break
        result.update(worst)
        if self.native and not program.get("sanitize"):
            ours = kept(program, folder, ran.output)
            ran = self.natively(program, home, run_folder)
            native = {**judge(program, ran), "seconds": ran.seconds}
            (home / "native.txt").write_text(ran.output)
            result["native"] = native
            # Natively the same arguments were enough.
            if result["outcome"] == "usage" and native["outcome"] in sound:
                result.update(outcome("wrong", result["why"]))
            if result["outcome"] in sound and ran.seconds > 0:
                result["ratio"] = result["seconds"] / ran.seconds
            if result["outcome"] == "ended" and native["outcome"] == "ended" and ours is not None:
                theirs = kept(program, folder, ran.output)
                if ours == theirs:
                    result["outcome"] = "right"
                elif kept(program, folder, self.natively(program, home, run_folder).output) != theirs:
                    result["why"] = "what it prints differs from one native run to the next"
                else:
                    result.update(outcome("wrong", difference(ours, theirs)))
        return result

    def timed(self, program, home, run_folder):
        """Runs a program natively and on Bulkhead in turns, and compares the times that it prints. One that does not end well
        natively within half of the limit is left out."""
        outputs = {"native": [], "ours": []}
        seconds = {"native": [], "ours": []}
        for _ in range(self.options.times):
            ran = self.natively(program, home, run_folder, self.options.seconds / 2)
            native = {**judge(program, ran), "seconds": ran.seconds}
            if native["outcome"] not in {"right", "ended"}:
                return {**outcome("absent", f"natively {native['outcome']}: {native['why']}"), "native": native}
            outputs["native"].append(ran.output)
            seconds["native"].append(ran.seconds)
            folder = self.prepare(program, home, run_folder)
            ran = self.on_bulkhead(program, home, folder)
            judged = {**judge(program, ran), "seconds": ran.seconds, "native": native}
            if judged["outcome"] not in {"right", "ended"}:
                return judged
            outputs["ours"].append(ran.output)
            seconds["ours"].append(ran.seconds)
        ours, theirs = (kept(program, folder, outputs[side][-1]) for side in ("ours", "native"))
        same = ours == theirs
        if judged["outcome"] == "ended" and program.get("same") == "output":
            again = len({tuple(kept(program, folder, text)) for text in outputs["native"]}) > 1
            judged.update(outcome("right") if same else outcome("ended" if again else "wrong", difference(ours, theirs)))
        (home / "output.txt").write_text(outputs["ours"][-1])
        (home / "native.txt").write_text(outputs["native"][-1])
        return {**judged, "times": times.compare(outputs["native"], outputs["ours"]), "seconds": min(seconds["ours"]),
                "ratio": min(seconds["ours"]) / min(seconds["native"])}

    def natively(self, program, home, run_folder, seconds=None):
        folder = self.prepare(program, home, run_folder)
        if program.get("make"):
            return run([*self.make(), "run", "LAUNCHER="], folder, seconds or self.options.seconds)
        return run([str(home / "program"), *arguments(program)], folder, seconds or self.options.seconds)

    def make(self):
        """How a program is made and run by its own makefile."""
        architecture = self.device() if self.native else str(self.architecture)
        return ["make", "-s", f"CC={self.toolchain / 'bin' / 'nvcc'}", f"ARCH=sm_{architecture}", "EXTRA_CFLAGS=-w"]

    def prepare(self, program, home, folder):
        """The folder to run in: a fresh one with links to what lies beside the sources and the kernels that the program
        loads, or its own where its makefile runs it."""
        if program.get("make"):
            return program.folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in [*(entry.name for entry in program.folder.iterdir()), *program.words("links")]:
            source = program.folder / name
            target = folder / pathlib.Path(name).name
            if not target.exists():
                target.symlink_to(source)
        for name in program.get("kernels", {}):
            target = folder / name
            target.unlink(missing_ok=True)
            shutil.copy(home / name, target)
        return folder

    def on_bulkhead(self, program, home, folder):
        # Mistakes are found on the software GPU only.
        backend = "software" if program.get("sanitize") else self.options.backend
        command = [str(self.options.bulkhead), "run"]
        if program.get("sanitize") or not self.options.served:
            command += ["--private", "--backend", backend]
        if program.get("sanitize"):
            command.append(f"--sanitize={program.get('sanitize')}")
        command += [*self.options.option, "--"]
        if program.get("make"):
            return run([*self.make(), "run", f"LAUNCHER={shlex.join(command)}"], folder, self.options.seconds)
        return run([*command, str(home / "program"), *arguments(program)], folder, self.options.seconds)

    def build(self, program, home):
        """Compiles a program, or with `--built` looks whether somebody has. Says why it could not."""
        if not self.options.built:
            return self.compile_by_make(program, home) if program.get("make") else self.compile(program, home)
        if program.get("make"):
            # What is packed of these is sources.
            return None if (home / "made").is_file() else self.compile_by_make(program, home)
        absent = [name for name in ["program", *program.get("kernels", {})] if not (home / name).is_file()]
        return f"no {', '.join(absent)} in {home}" if absent else None

    def compile_by_make(self, program, home):
        """Has a program's makefile compile it. Says why it could not."""
        built = run(self.make(), program.folder, BUILD_SECONDS_MAX)
        (home / "build.txt").write_text(built.output)
        if built.status != 0:
            return why_not_built(built)
        (home / "made").touch()
        return None

    def compile(self, program, home):
        """Compiles a program unless its last build was of the same sources. Says why it could not."""
        sources = program.sources()
        if not sources:
            return "no sources"
        nvcc = [str(self.toolchain / "bin" / "nvcc"), *self.targets(), "-w", "-O2", *program.words("flags")]
        main = [*nvcc, "-o", str(home / "program"), *map(str, sources), *program.words("libraries")]
        if any("-lcuda" == word for word in main):
            main += ["-L", str(self.libcuda(home))]
        commands = [main]
        for name, source in program.get("kernels", {}).items():
            kind = "-ptx" if name.endswith(".ptx") else "-fatbin"
            targets = [f"-arch=compute_{self.architecture}"] if kind == "-ptx" else self.targets()
            commands.append([
                str(self.toolchain / "bin" / "nvcc"), *targets, "-w", kind, *program.words("flags"),
                "-o", str(home / name), str(program.folder / source)])
        stamp = home / "built"
        newest = max(source.stat().st_mtime for source in program.folder.rglob("*") if source.is_file())
        key = json.dumps([commands, newest, str(self.toolchain)])
        if stamp.exists() and stamp.read_text() == key:
            return None
        stamp.unlink(missing_ok=True)
        for command in commands:
            built = run(command, program.folder, BUILD_SECONDS_MAX)
            (home / "build.txt").write_text(f"{shlex.join(command)}\n{built.output}")
            if built.status != 0:
                return why_not_built(built)
        stamp.write_text(key)
        return None

    def targets(self):
        """PTX always, as that is what Bulkhead runs; machine code for the native run only where there is a GPU."""
        virtual = f"arch=compute_{self.architecture}"
        words = ["-gencode", f"{virtual},code=compute_{self.architecture}"]
        if self.native:
            words += ["-gencode", f"{virtual},code=sm_{self.device()}"]
        return words

    def device(self):
        """The compute capability of the first GPU, without its point."""
        if not hasattr(self, "_device"):
            try:
                asked = subprocess.run(
                    ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"],
                    capture_output=True, text=True, timeout=60)
                self._device = asked.stdout.split()[0].replace(".", "")
            except (OSError, IndexError, subprocess.TimeoutExpired):
                self._device = str(self.architecture)
        return self._device

    def libcuda(self, home):
        """A folder with a libcuda.so to link with: its name is the driver's, so either is found later."""
        folder = home / "link"
        folder.mkdir(exist_ok=True)
        stub = folder / "libcuda.so"
        stub.unlink(missing_ok=True)
        stub.symlink_to(self.options.bulkhead.parent / "libcuda.so")
        return folder


def why_not_built(built):
    if built.status is None:
        return f"compiling took more than {BUILD_SECONDS_MAX} s"
    errors = re.search(r"^.*(error|fatal|undefined reference).*$", built.output, re.MULTILINE)
    return (errors.group(0) if errors else built.output.strip()[-200:] or "nvcc failed").strip()


def arguments(program):
    return [program.filled(word) for word in program.get("arguments", [])]


def kept(program, folder, output):
    """What a program computed: the files it is to write, or the lines of its output that do not change."""
    same = program.get("same")
    if not same:
        return None
    if same == "output":
        drop = program.get("drop")
        return [line for line in output.splitlines() if not drop or not re.search(drop, line)]
    return [(folder / name).read_bytes() if (folder / name).is_file() else None for name in same]


def difference(ours, theirs):
    """Where what a program computed first differs from its native run."""
    both = [*ours, *theirs]
    if all(isinstance(line, str) for line in both) and sorted(ours) == sorted(theirs):
        return "prints the lines of the native run in another order, which kernels that print do not promise"
    for mine, native in itertools.zip_longest(ours, theirs, fillvalue="nothing more"):
        if mine != native:
            if isinstance(mine, bytes) or isinstance(native, bytes) or None in (mine, native):
                break
            return f"differs from the native run: `{mine.strip()[:100]}` where that has `{native.strip()[:100]}`"
    return "what it computes differs from the native run"


def outcome(word, why=""):
    assert word in OUTCOMES, word
    why = " ".join(why.split())
    return {"outcome": word, "why": why if len(why) <= 300 else why[:297] + "..."}


def judge(program, ran):
    """What became of a program, by how it ended and what it printed.

    >>> def judged(status, output, **table): return judge(table, Ran(status, output, 1.0))["outcome"]
    >>> judged(1, "Usage: ./main <repeat>", found=True), judged(1, "Usage: ./main <repeat>"), judged(0, "usage of memory", found=True)
    ('usage', 'wrong', 'ended')
    >>> judged(-11, "usage: a.out N", found=True), judged(1, "FAIL", found=True), judged(1, "memory usage: 3 MB", found=True)
    ('crash', 'wrong', 'wrong')
    """
    refused = REFUSAL.search(ran.output)
    missing = NOT_THERE.search(ran.output)
    said = refused.group("why") if refused else missing.group(0) if missing else ""
    if ran.status is None:
        # What make says of a program that was stopped is no word of the program's.
        own = "\n".join(line for line in ran.output.splitlines() if not line.startswith("make: "))
        return outcome("out of time", said or f"not done after {ran.seconds:.0f} s: {last_line(own)}")
    expected = program.get("status", 0)
    right = program.get("right")
    wrong = program.get("wrong")
    if program.get("sanitize"):
        if right and not re.search(right, ran.output, re.MULTILINE):
            return outcome("wrong", f"the report has no {right!r}")
        return outcome("right")
    bad = wrong and re.search(wrong, ran.output, re.MULTILINE)
    good = not right or re.search(right, ran.output, re.MULTILINE)
    if ran.status == expected and not bad and good:
        if right or program.get("checks"):
            return outcome("right")
        # Many programs ask for no error.
        return outcome("refused", said) if refused and REFUSES.search(said) else outcome("ended")
    if said:
        return outcome("refused", said)
    # Others end with the number of CUDA's error, which may be the same.
    if ran.status == EXIT_WAIVED and not program.get("found"):
        return outcome("waived", last_line(ran.output))
    # A shell's way to tell of signals, which `bulkhead run` follows.
    number = -ran.status if ran.status < 0 else ran.status - 128
    if ran.status < 0 or ran.status > 128 and number in {sign.value for sign in signal.Signals}:
        return outcome("crash", f"{signal.Signals(number).name}: {last_line(ran.output)}")
    if bad:
        return outcome("wrong", bad.group(0))
    # Nobody said which arguments programs want that have no table.
    usage = USAGE.search(ran.output)
    if usage and program.get("found"):
        return outcome("usage", usage.group(0))
    if ran.status != expected:
        return outcome("wrong", f"ended with {ran.status}: {last_line(ran.output)}")
    return outcome("wrong", f"its output has no {right!r}: {last_line(ran.output)}")


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def table(results, native):
    """The report: a line a program, then how many of each outcome."""
    width = max((len(result["program"]) for result in results), default=8)
    lines = [f"{'program':{width}}  {'outcome':11}  {'seconds':>7}" + ("  native       ratio" if native else "") + "  why"]
    for result in results:
        line = f"{result['program']:{width}}  {result['outcome']:11}  {result['seconds']:7.1f}"
        if native:
            other = result.get("native", {}).get("outcome", "")
            ratio = f"{result['ratio']:5.2f}" if "ratio" in result else "     "
            line += f"  {other:11}  {ratio}"
        lines.append(f"{line}  {result['why']}".rstrip())
    lines.append("")
    for word in OUTCOMES:
        count = sum(result["outcome"] == word for result in results)
        if count:
            lines.append(f"{count:5}  {word}")
    lines += times.summary(results)
    return "\n".join(lines)


def sources_of_makefile(folder):
    """The folders that a program with a makefile of its own is made from: its own, and neighbours that it names."""
    texts = [path.read_text(errors="replace") for path in folder.rglob("*")
             if path.is_file() and (path.name == "Makefile" or path.suffix in {".cu", ".h", ".cuh", ".hpp", ".cpp"})]
    names = {name for text in texts for name in re.findall(r"\.\./([A-Za-z0-9_-]+)(?=/)", text)}
    return [folder, *(place for name in sorted(names) if (place := folder.parent / name).is_dir() and place != folder)]


def pack(options, programs):
    """Writes an archive of two folders, `build` and `checkouts`, with which `--built` runs elsewhere. Of programs that are
    made by makefiles of their own it has the sources."""
    architecture = f"compute_{options.architecture}"
    packed = set()

    def add(archive, path, name):
        if path.is_file() and name not in packed:
            packed.add(name)
            archive.add(path.resolve(), name, recursive=False)

    built = 0
    with tarfile.open(options.pack, "w:xz") as archive:
        for program in programs:
            home = options.build / architecture / program.suite / program.name
            if program.get("make") and program.folder and program.folder.is_dir():
                built += 1
                for place in sources_of_makefile(program.folder):
                    for path in place.rglob("*"):
                        if path.suffix != ".o" and path.name != "main" and path.stat().st_size <= PACKED_BYTES_MAX:
                            add(archive, path, f"checkouts/{path.relative_to(program.root.parent)}")
                continue
            if program.root is None or not (home / "program").is_file():
                continue
            built += 1
            if program.get("found"):
                # Of a checkout without a table: its programs are found by their sources.
                for source in program.sources():
                    add(archive, source, f"checkouts/{source.relative_to(program.root.parent)}")
            for name in ["program", *program.get("kernels", {})]:
                add(archive, home / name, f"build/{architecture}/{program.suite}/{program.name}/{name}")
            if REPOSITORY in program.root.parents:
                continue
            checkouts = program.root.parent
            links = [pathlib.Path(word) for word in program.words("links")]
            for place in [program.folder, *links, *(pathlib.Path(word) for word in arguments(program))]:
                if checkouts not in place.parents:
                    continue
                for path in [place, *place.rglob("*")] if place.is_dir() else [place]:
                    if path in links or path.suffix not in NOT_READ or path == place:
                        add(archive, path, f"checkouts/{path.relative_to(checkouts)}")
            folder = tarfile.TarInfo(f"checkouts/{program.folder.relative_to(checkouts)}")
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
    say(f"{built} programs, {options.pack.stat().st_size >> 20} MiB in {options.pack}")
    return int(built == 0)


def parse():
    suites = sorted(path.stem for path in HERE.glob("*.toml") if path.stem != "any")
    parser = argparse.ArgumentParser(
        description="Builds and runs CUDA programs that others wrote, on Bulkhead and natively where there is a GPU.",
        epilog="Ends with 1 where a program was wrong, crashed or ran out of time, or was refused under --strict. "
        "docs/OUTSIDE.md says where the checkouts come from.")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"all of them unless named: {', '.join(suites)}")
    parser.add_argument("--folder", action="append", default=[], type=pathlib.Path, metavar="FOLDER",
                        help="a checkout that has no table, in place of suites: each .cu file with a main is compiled by itself, "
                        "and right if it prints what it prints natively")
    parser.add_argument("--checkouts", type=pathlib.Path, help="the folder of the checkouts, named as in SUITE.toml")
    parser.add_argument("--build", type=pathlib.Path, help="the folder of what is built (CHECKOUTS/build)")
    parser.add_argument("--bulkhead", type=pathlib.Path, default=REPOSITORY / "target/release/bulkhead",
                        help="the binary (target/release/bulkhead)")
    parser.add_argument("--toolchain", type=pathlib.Path, default=REPOSITORY / ".toolchain/cuda",
                        help="the CUDA root (.toolchain/cuda, which tests/toolchain.sh installs)")
    parser.add_argument("--backend", default="auto", choices=["auto", "software", "cuda"], help="as of bulkhead run")
    parser.add_argument("--served", action="store_true",
                        help="on one kernel for all (bulkhead serve, which this starts unless BULKHEAD_SOCKET names one) and not on "
                        "one for each program, whose start takes a GPU seconds where many do so at once")
    parser.add_argument("--architecture", type=int, default=80, help="PTX for compute_NN (80)")
    parser.add_argument("--only", metavar="REGEX", help="programs whose SUITE/NAME this finds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="programs at a time")
    parser.add_argument("--seconds", type=float, default=120, help="time limit of each run (120)")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each program, until one is not right (1)")
    parser.add_argument("--option", action="append", default=[], metavar="OPTION",
                        help="one more option for bulkhead run, such as --engine=compiled")
    parser.add_argument("--sample", type=int, metavar="N", help="N of the programs, drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="of --sample (1)")
    parser.add_argument("--within", type=float, metavar="SECONDS", help="begin no program after so long")
    parser.add_argument("--times", type=int, default=0, metavar="TURNS",
                        help="run each program natively and on Bulkhead in so many turns, and compare the least of the times "
                        "that it prints; with --jobs 1 they mean something")
    parser.add_argument("--build-only", action="store_true", help="run nothing")
    parser.add_argument("--built", action="store_true", help="compile nothing: run what --build has, such as a pack (programs with makefiles of their own "
                        "are packed as sources, and made)")
    parser.add_argument("--pack", type=pathlib.Path, metavar="FILE.tar.xz",
                        help="run nothing, but write what is built and the files that it reads to FILE.tar.xz")
    parser.add_argument("--no-native", action="store_true", help="no native runs, even where there is a GPU")
    parser.add_argument("--strict", action="store_true", help="end with 1 for whatever is not right")
    parser.add_argument("--list", action="store_true", help="print the programs and end")
    parser.add_argument("--json", action="store_true", help="print the results as JSON instead of a table")
    options = parser.parse_args()
    for suite in options.suites:
        if suite not in suites:
            parser.error(f"no suite {suite}; there are {', '.join(suites)}")
    options.suites = options.suites or ([] if options.folder else suites)
    options.folder = [folder.resolve() for folder in options.folder]
    for folder in options.folder:
        if not folder.is_dir():
            parser.error(f"no folder {folder}")
    for key in ("checkouts", "build", "bulkhead", "toolchain"):
        if getattr(options, key):
            setattr(options, key, getattr(options, key).resolve())
    if not options.build:
        options.build = options.checkouts / "build" if options.checkouts else REPOSITORY / "target/outside"
    return options


def main():
    options = parse()
    programs = [program for suite in options.suites for program in load(suite, options.checkouts, options.build)]
    programs += [program for folder in options.folder for program in suite_of(folder, options.build)]
    if options.only:
        programs = [program for program in programs if re.search(options.only, program.path)]
    if options.sample is not None and options.sample < len(programs):
        programs = random.Random(options.seed).sample(programs, options.sample)
    if not programs:
        fail("no program has such a name" if options.only or not options.folder else "no .cu file with a main there")
    if options.list:
        print("\n".join(program.path for program in programs))
        return 0
    if options.pack:
        return pack(options, programs)
    if not options.built and not (options.toolchain / "bin/nvcc").exists():
        fail(f"no compiler in {options.toolchain}: tests/toolchain.sh installs one, or name one with --toolchain")
    if not options.build_only and not options.bulkhead.exists():
        fail(f"no {options.bulkhead}: build it with cargo build --release, or name one with --bulkhead")
    make_data(options.build / "data", {name for program in programs for name in program.get("data", [])})
    runner = Runner(options)
    if options.times and not runner.native:
        fail("--times compares with native runs: it needs a GPU, and no --no-native")
    runner.total = len(programs)
    with serving(options), concurrent.futures.ThreadPoolExecutor(max(1, options.jobs)) as pool:
        results = list(pool.map(runner.one, programs))
    if options.json:
        print(json.dumps({"architecture": options.architecture, "backend": options.backend, "programs": results}, indent=1))
    else:
        print(table(results, runner.native))
    bad = {"wrong", "crash", "out of time"}
    if options.strict:
        bad |= {"refused", "waived", "not built", "absent", "ended"}
    return int(any(result["outcome"] in bad for result in results))


if __name__ == "__main__":
    sys.exit(main())
