#!/usr/bin/env python3
"""What no compiler checks: who may include whom (docs/design.md, "The rooms"), that the pure rooms do
no I/O and keep no state, and the habits that can be read off the sources.  TAP.

Each rule is proven to bite: a copy of the tree gets one planted fault, which must be found.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
TREES = ("common", "kernels", "launcher", "worker")
CFLAGS = ["-std=gnu17", "-D_GNU_SOURCE", "-I."]

# A room may include itself and these.
BELOW = "base link spec shape plan rdzv super"
LAYERS = {
    "common/base": "",
    "common/link": "base",
    "common/spec": "base",
    "common/shape": "base spec",
    "kernels": "base",
    "kernels/cpu": "base kernels",
    "worker": "base link spec shape kernels worker/*",
    "worker/*": "base link spec shape kernels worker worker/*",
    "launcher/plan": "base spec shape",
    "launcher/rdzv": "base",
    "launcher/super": "base spec shape plan rdzv",
    "launcher/wire": BELOW,
    "launcher/boot": BELOW,
    "launcher/record": BELOW + " boot wire",
    "launcher/agent": BELOW + " boot wire agent/*",
    "launcher/agent/*": BELOW + " boot wire agent/*",
    "launcher/control": BELOW + " boot wire record",
    "launcher/watch": BELOW + " boot wire record control",
    "launcher/doc": "base spec",
    "launcher": BELOW + " boot wire record control watch doc",
}
PURE = ("common/shape", "launcher/plan", "launcher/rdzv", "launcher/super")
PURE_HEADERS = set("assert ctype errno float inttypes limits math signal stdarg stdbool stddef stdint "
                   "stdio stdlib string".split())
# What a pure room may call: libc on memory alone, the ground floor on memory alone, jansson's trees.
PURE_CALLS = re.compile(
    r"^(mem(cpy|move|set|cmp|chr)|str\w+|__(ctype_b_loc|assert_fail|errno_location|isoc\w*sscanf)|v?snprintf|"
    r"free|qsort|bsearch|abs|l?labs|u?lldiv|\w*(floor|ceil|round|rint|sqrt|pow|exp|log|sin|cos|tan|fabs|fmod|fmin|fmax)"
    r"(2|10|1p|m1|h)?f?l?|l?lround|isnan|isinf|__stack_chk_fail|"
    r"err_\w+|buf_\w+|hex_decode|units_\w+|x[mc]alloc|xrealloc(_array)?|xstrn?dup|xasprintf|"
    r"spec_(?!load)\w+|json_(?!(load|dump)_?(file|fd|f|callback)?$)\w+|_GLOBAL_OFFSET_TABLE_)$")
BANNED = re.compile(r"\b(v?sprintf|strcpy|strcat|system|alloca|u?sleep|nanosleep|clock_nanosleep|gets)\s*\(")
LINES_MAX = {"tests": 1000}  # else 800
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def files(root, ends, tops=TREES):
    for top in tops:
        for folder, _, names in sorted(os.walk(os.path.join(root, top))):
            for n in sorted(names):
                if n.endswith(ends):
                    yield os.path.relpath(os.path.join(folder, n), root)


def text(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as f:
        return f.read()


def line_of(s, at):
    return s.count("\n", 0, at) + 1


def code(s):
    """Comments and strings blanked; lines kept."""
    def blank(m):
        return re.sub(r"[^\n]", " ", m.group(0))
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(\\.|[^"\\\n])*"|\'(\\.|[^\'\\\n])*\'', blank, s, flags=re.S)


def room_rule(room):
    """The names that `room` may include; None if it is no room."""
    return LAYERS.get(room, LAYERS.get(os.path.dirname(room) + "/*"))


def short(room):
    return room if room.startswith(("worker", "kernels")) else room.split("/", 1)[-1]


def allowed(rule, room, target):
    if room == target:
        return True
    name = short(target)
    return any(name == r or (r.endswith("/*") and os.path.dirname(name) == r[:-2]) for r in rule.split())


def layers(root, _):
    for path in files(root, (".c", ".h", ".cu")):
        s, room = text(root, path), os.path.dirname(path)
        rule = room_rule(room)
        if rule is None:
            yield f"{path}: {room} is no room that tests/lint/layers.t knows"
            continue
        for m in INCLUDE.finditer(s):
            if m[1] != '"':
                continue
            where, target = f"{path}:{line_of(s, m.start())}", os.path.dirname(m[2])
            made = target == "launcher/wire" and m[2].endswith(".pb-c.h")
            if not made and not os.path.isfile(os.path.join(root, m[2])):
                yield f'{where}: "{m[2]}" is no path from the root'
            elif not allowed(rule, room, target):
                yield f"{where}: {room} may not include {m[2]}"


def pure_includes(root, _):
    for path in files(root, (".c", ".h"), PURE):
        s = text(root, path)
        for m in INCLUDE.finditer(s):
            where = f"{path}:{line_of(s, m.start())}"
            if m[1] == "<" and m[2] != "jansson.h" and m[2].removesuffix(".h") not in PURE_HEADERS:
                yield f"{where}: a pure room includes <{m[2]}>"
            if m[2] in ("common/base/io.h", "common/base/log.h"):
                yield f"{where}: a pure room includes {m[2]}"


def compile_pure(root, gen, path, out):
    obj = os.path.join(out, path.replace("/", "-") + ".o")
    # Not position independent: else tables of constant pointers look like variables.
    r = subprocess.run(["gcc", *CFLAGS, f"-I{gen}", "-O1", "-fno-pie", "-c", path, "-o", obj], cwd=root,
                       capture_output=True, text=True, check=False)
    if r.returncode:
        return path, None, r.stderr.splitlines()[0]
    nm = subprocess.run(["nm", obj], capture_output=True, text=True, check=True).stdout
    return path, [line.split()[-2:] for line in nm.splitlines()], None


def pure_calls(root, gen):
    with tempfile.TemporaryDirectory() as out, concurrent.futures.ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda p: compile_pure(root, gen, p, out), files(root, (".c",), PURE)))
    own = {name for _, syms, _ in done for kind, name in syms or [] if kind in "TR"}
    for path, syms, error in done:
        if error:
            yield f"{path}: {error}"
        for kind, name in syms or []:
            if kind == "U" and name not in own and not PURE_CALLS.match(name):
                yield f"{path}: a pure room calls {name}"
            if kind in "dDbBC":
                yield f"{path}: {name} can change: a pure room keeps no state of its own"


def banned(root, _):
    for path in files(root, (".c", ".h", ".cu"), TREES + ("tests",)):
        s = code(text(root, path))
        for m in BANNED.finditer(s):
            yield f"{path}:{line_of(s, m.start())}: {m[1]} is banned"


def guards(root, _):
    seen = {}
    for path in files(root, (".h",), TREES + ("tests",)):
        m = re.search(r"^#ifndef (\w+)\n#define (\w+)\n", text(root, path), re.M)
        parts = re.sub(r"[^\w/]", "_", path[:-2]).upper().split("/")
        if not m or m[1] != m[2]:
            yield f"{path}: no guard"
            continue
        if m[1] in seen:
            yield f"{path}: {m[1]} is {seen[m[1]]}'s guard"
        seen[m[1]] = path
        # DS_, folders of the path (some may be left out), the file's name.
        fits = "^DS_" + "".join(f"({p}_)?" for p in parts[:-1]) + parts[-1] + "_H$"
        if not re.match(fits, m[1]):
            yield f"{path}: guard {m[1]}, not as DS_{parts[-2]}_{parts[-1]}_H"


def unique_names(root, _):
    seen = {}
    for path in files(root, (".c", ".h", ".cu", ".py", ".sh", ".proto"), TREES + ("tests",)):
        name = os.path.basename(path)
        # The CUDA back end's files are called as the CPU's; main.c is each program's.
        if name in seen and name != "main.c":
            yield f"{path}: {seen[name]} has that name"
        seen[name] = path


def lengths(root, _):
    for path in files(root, (".c", ".h", ".cu", ".py", ".sh", ".t", ".bats"), TREES + ("tests",)):
        n, most = text(root, path).count("\n"), LINES_MAX.get(path.split("/")[0], 800)
        if n > most:
            yield f"{path}: {n} lines, more than {most}"


def alone(root, gen):
    def syntax(path):
        r = subprocess.run(["gcc", *CFLAGS, f"-I{gen}", "-fsyntax-only", "-x", "c", path], cwd=root,
                           capture_output=True, text=True, check=False)
        return [f"{path} does not compile alone: {r.stderr.splitlines()[0]}"] if r.returncode else []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for found in pool.map(syntax, files(root, (".h",))):
            yield from found


# rule, what it says, and a fault that it must find: file, text added at its end.
RULES = [
    (layers, "rooms include what lies below them only", "common/shape/topo.c",
     '#include "launcher/cmd.h"\n'),
    (layers, "... kernels know no more than the ground floor", "kernels/cpu/tile.c",
     '#include "common/shape/topo.h"\n'),
    (layers, "... a worker knows kernels by their headers", "worker/train.c",
     '#include "kernels/cpu/tile.h"\n'),
    (layers, "... and paths start at the root", "launcher/super/job.c", '#include "health.h"\n'),
    (pure_includes, "pure rooms include no system", "launcher/super/health.c", "#include <sys/wait.h>\n"),
    (pure_calls, "pure rooms call no system", "launcher/super/health.c",
     '#include "common/base/clock.h"\nint64_t planted(void);\nint64_t planted(void)\n'
     "{\n    return clock_now_ns();\n}\n"),
    (pure_calls, "... and keep no state", "launcher/rdzv/rdzv.c",
     "int planted(void);\nint planted(void)\n{\n    static int n;\n    return n++;\n}\n"),
    (banned, "banned functions", "launcher/main.c", "int x = system (0);\n"),
    (guards, "guards", "common/base/err.h", None),
    (unique_names, "file names are unique", "launcher/super/topo.c", "\n"),
    (lengths, "no file is too long", "launcher/super/restart.c", "\n" * 800),
    (alone, "headers compile alone", "launcher/super/restart.h", "extern struct nobody planted[2];\n"),
]


def plant(root, path, added):
    full = os.path.join(root, path)
    if added is None:
        s = text(root, path)
        with open(full, "w", encoding="utf-8") as f:
            f.write(s.replace("#define DS_", "#define DX_", 1))
        return
    with open(full, "a", encoding="utf-8") as f:
        f.write(added)


def main():
    n, ok, told = 0, True, {}

    def say(good, name, findings=()):
        nonlocal n, ok
        n, ok = n + 1, ok and good
        print(("ok" if good else "not ok"), n, "-", name)
        for line in findings:
            print("#", line)

    with tempfile.TemporaryDirectory() as tmp:
        gen, copy = os.path.join(tmp, "gen"), os.path.join(tmp, "copy")
        os.mkdir(gen)
        subprocess.run(["protoc-c", f"--c_out={gen}", *files(ROOT, (".proto",))], cwd=ROOT, check=True)
        print(f"1..{2 * len(RULES)}")
        for rule, name, path, added in RULES:
            if rule not in told:
                told[rule] = list(rule(ROOT, gen))
            say(not told[rule], name, told[rule])
            for top in TREES + ("tests",):
                shutil.copytree(os.path.join(ROOT, top), os.path.join(copy, top), dirs_exist_ok=True)
            plant(copy, path, added)
            found = [f for f in rule(copy, gen) if f not in told[rule] and path in f]
            say(bool(found), f"{name}: the planted fault is found")
            shutil.rmtree(copy)
    sys.exit(0 if ok else 1)


main()
