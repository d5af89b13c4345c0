#!/usr/bin/env python3
"""Checks the rooms of src/ and servers/: which may include and call which, and how large things may be.

    test/lint/lint.py [ROOT]            prints TAP
    test/lint/lint.py --rooms [ROOT]    prints the rooms, their sizes and their arrows, and the totals
    test/lint/lint.py --typedefs [ROOT] prints pgindent's list of typedefs (scripts/typedefs.list)

Circles are looked for among the symbols of the object files, so the library must be
built first. src/README, "Rooms", says what each room is for, servers/README those of the second library.
"""
import collections
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

# From the bottom up: a room may use those before it, but for what FORBIDDEN says.
ROOMS = ("base", "distance", "pq", "storage", "graph", "search", "io", "hints", "cache", "index", "attributes",
         "recall", "build", "insert", "scan", "plan", "vacuum", "verify", "sqlfuncs", "am", "core", "remote", "cells", "queries")
# Those of the library in servers/. It is loaded beside the other one, of which it may
# know these headers and no symbol.
SERVERS = ("core", "remote", "cells", "queries")
INTERFACE = {"plan/interface.h", "base/base.h", "base/random.h", "distance/distance.h"}
# Files of a room that have a header of their own for others.
NEIGHBORS = {"index/neighbors"}
# Rooms that compute without a server do not see those that need one. Of a room that
# is known, files may be forbidden.
FORBIDDEN = {
    "graph": {"storage"},
    "search": {"graph"},
    "io": {"graph", "search", "pq", "distance"},
    "hints": {"graph", "search", "pq", "distance"},
    "cache": {"graph", "search"},
    "scan": NEIGHBORS | {"build", "insert"},
    "plan": NEIGHBORS | {"search", "io", "hints", "cache", "build", "insert"},
    "attributes": NEIGHBORS,
    "vacuum": {"insert", "scan", "plan"},
    "verify": NEIGHBORS | {"build", "insert", "scan", "plan", "vacuum"},
}
# Headers of a room that others may include beside ROOM/ROOM.h.
OPEN_HEADERS = {"distance/sparse.h", "index/neighbors.h", "pq/codes.h", "storage/slot.h", "storage/page_source.h"}
OPEN_ROOMS = {"base"}
MOST_FUNCTION, MOST_HEADER, MOST_PARAMETERS = 100, 250, 7
MOST_README, MOST_COLUMNS = 150, 100
MOST_README_WORDS, MOST_WORDS = 900, 18000	# and of README.md with docs/ but for decisions.md
# What may only fall. A commit that lowers a total may lower its limit; one that raises a limit
# says in its message which other it lowered (CONTRIBUTING.md, "Size").
TOTALS = {
    "lines of src/*/*.[ch]": 41979,
    "functions of pipeann.so that are not static": 363,
    "headers of src/": 47,
    "words of src/README": 8932,
    "fields of PipeannSearch": 37,
    "fields of PipeannScan": 28,
    "fields of PipeannMeta": 24,
}
# Functions whose parameters PostgreSQL has chosen.
CALLBACKS = {"pipeanncostestimate", "pipeanninsert"}

INCLUDE = re.compile(r'^\s*#\s*include\s+"([a-z_]+)/([a-z0-9_]+\.h)"', re.M)
TYPEDEFS = (re.compile(r"^}\s*(\w+)(?:\[\w*\])?;", re.M),
            re.compile(r"^typedef\s+(?:const\s+)?(?:struct|union|enum)\s+\w+\s+\**(\w+);", re.M),
            re.compile(r"^typedef\s[^{;]*?\(\*(\w+)\)\s*\(", re.M),
            re.compile(r"^typedef\s+(?!struct\b|union\b|enum\b)[\w\s\*]+?\b(\w+);", re.M))


def tree_of(room):
    return "servers" if room in SERVERS else "src"


def sources(root):
    """{room: [path]} of the files of all rooms."""
    found = collections.defaultdict(list)
    for tree in ("src", "servers"):
        for folder, _, files in sorted(os.walk(os.path.join(root, tree))):
            room = os.path.relpath(folder, os.path.join(root, tree))
            for name in sorted(files):
                if name.endswith((".c", ".h")) and room != ".":
                    found[room].append(os.path.join(folder, name))
    return found


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def short(root, path):
    return os.path.relpath(path, root)


def unknown_rooms(root):
    folders = {short(root, os.path.dirname(path)) for paths in sources(root).values() for path in paths}
    return [f"{folder} is no room that lint.py knows" for folder in sorted(folders)
            for tree, room in [folder.split(os.sep, 1)] if room not in ROOMS or tree != tree_of(room)]


def included(root, path):
    """(room, header) of our own headers that a file includes."""
    return [(room, header) for room, header in INCLUDE.findall(read(path))
            if os.path.exists(os.path.join(root, tree_of(room), room, header))]


def allowed(room, other, file):
    """Whether a room may know a file (ROOM/NAME) of another one."""
    if tree_of(room) != tree_of(other):
        return False
    return ROOMS.index(other) < ROOMS.index(room) and not {other, file} & set(FORBIDDEN.get(room, ()))


def includes(root):
    """Headers of rooms above, or private ones of others."""
    wrong = []
    for room, paths in sources(root).items():
        for path in paths:
            for other, header in included(root, path):
                if other == room or room not in ROOMS or other not in ROOMS:
                    continue
                if room in SERVERS and f"{other}/{header}" in INTERFACE:
                    continue
                if not allowed(room, other, f"{other}/{header[:-2]}"):
                    wrong.append(f"{short(root, path)} includes {other}/{header}, which {room} may not know")
                elif header != f"{other}.h" and f"{other}/{header}" not in OPEN_HEADERS and other not in OPEN_ROOMS:
                    wrong.append(f"{short(root, path)} includes {other}/{header}, which is private to {other}")
    return wrong


def symbols_of(root):
    """[(file, symbols that it defines, symbols that it uses)] by the object files."""
    found = []
    for room, paths in sources(root).items():
        for path in paths:
            if not path.endswith(".c"):
                continue
            lines = subprocess.run(["nm", path[:-2] + ".o"], capture_output=True, text=True, check=True).stdout.split("\n")
            parts = [line.split() for line in lines]
            found.append((f"{room}/{os.path.basename(path)[:-2]}",
                          {p[2] for p in parts if len(p) == 3 and p[1] in "TDBRCV"},
                          {p[1] for p in parts if len(p) == 2 and p[0] == "U"}))
    return found


def calls(root):
    """{file: {file: symbols}} by the symbols of the object files."""
    defined, used = {}, {}
    for name, defines, uses in symbols_of(root):
        defined.update(dict.fromkeys(defines, name))
        used[name] = uses
    graph = {name: collections.defaultdict(set) for name in used}
    for name, symbols in used.items():
        for symbol in symbols:
            if symbol in defined and defined[symbol] != name:
                graph[name][defined[symbol]].add(symbol)
    return graph


def components(graph):
    """The strongly connected components of more than one file (Tarjan)."""
    index, low, stack, on, found = {}, {}, [], set(), []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on.add(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            members = []
            while not members or members[-1] != node:
                members.append(stack.pop())
                on.discard(members[-1])
            if len(members) > 1:
                found.append(sorted(members))

    sys.setrecursionlimit(10000)
    for node in graph:
        if node not in index:
            visit(node)
    return found


def circles(root):
    return ["files call each other in a circle: " + ", ".join(members) for members in components(calls(root))]


def room_calls(root):
    """Symbols of rooms that may not be known, however they were declared."""
    wrong = []
    for name, others in calls(root).items():
        room = name.split("/")[0]
        for other, symbols in others.items():
            to = other.split("/")[0]
            if to != room and room in ROOMS and to in ROOMS and not allowed(room, to, other):
                wrong.append(f"{name} uses {', '.join(sorted(symbols))} of {other}, which {room} may not know")
    return wrong


def libpq(root):
    """Files of src/ that know libpq or foreign tables."""
    wrong = []
    for room, paths in sources(root).items():
        wrong += [f"{short(root, path)} includes {header}" for path in paths if tree_of(room) == "src"
                  for header in re.findall(r'^\s*#\s*include\s+["<](libpq-fe\.h|foreign/\w+\.h)', read(path), re.M)]
    return wrong


def in_both(root):
    """Symbols of both libraries: a server that loads both would take the first for the second."""
    defined = {"src": {}, "servers": {}}
    for name, defines, _ in symbols_of(root):
        defined[tree_of(name.split("/")[0])].update(dict.fromkeys(defines, name))
    return [f"{defined['src'][symbol]} and {defined['servers'][symbol]} both define {symbol}"
            for symbol in sorted(set(defined["src"]) & set(defined["servers"]) - {"_PG_init", "Pg_magic_func"})]


def functions(text):
    """(name, lines) of each function: a body begins with { and ends with } at a line's beginning."""
    found, begun, name = [], None, ""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if line == "{" and number and begun is None and lines[number - 1].endswith(")"):
            begun = next((at for at in range(number - 1, max(number - 12, 0) - 1, -1)
                          if re.match(r"^\w+\(", lines[at])), None)
            name = begun is not None and re.match(r"^\w*", lines[begun]).group(0)
        elif line == "}" and begun is not None:
            found.append((name, number - begun + 1))
            begun = None
    return found


def parameters(text):
    """(name, number of parameters) of each function."""
    found = []
    for head in re.finditer(r"^(\w+)\(((?:[^()]|\([^()]*\))*)\)\n{", text, re.M):
        found.append((head.group(1), re.sub(r"\([^()]*\)", "", head.group(2)).count(",") + 1))
    return found


def wide(root):
    """Functions with many parameters, and rooms whose public header is long."""
    wrong = []
    for room, paths in sources(root).items():
        for path in paths:
            text = read(path)
            wrong += [f"{short(root, path)}: {name}() has {count} parameters, more than {MOST_PARAMETERS}"
                      for name, count in parameters(text) if count > MOST_PARAMETERS and name not in CALLBACKS]
            lines = text.count("\n")
            if os.path.basename(path) == f"{room}.h" and lines > MOST_HEADER:
                wrong.append(f"{short(root, path)} has {lines} lines, more than {MOST_HEADER}: it is what other rooms see")
    return wrong


def fields(text, name):
    """The number of fields of a struct."""
    body = re.search(r"^(?:typedef )?struct %s\n{(.*?)^}" % name, re.sub(r"/\*.*?\*/", "", text, flags=re.S), re.M | re.S)
    return sum(re.sub(r"\([^()]*\)", "", field).count(",") + 1 for field in body.group(1).split(";") if field.strip()) if body else 0


def totals(root):
    """{what: number} of all that TOTALS limits."""
    paths = [path for room, found in sources(root).items() if tree_of(room) == "src" for path in found]
    texts = {path: read(path) for path in paths}
    symbols = subprocess.run(["nm", "-g", "--defined-only", os.path.join(root, "pipeann.so")],
                             capture_output=True, text=True, check=True).stdout
    everything = "\n".join(texts.values())
    found = {
        "lines of src/*/*.[ch]": sum(text.count("\n") for text in texts.values()),
        "functions of pipeann.so that are not static": symbols.count(" T "),
        "headers of src/": sum(path.endswith(".h") for path in paths),
        "words of src/README": len(read(os.path.join(root, "src", "README")).split()),
    }
    found.update((what, fields(everything, what.split()[-1])) for what in TOTALS if what.startswith("fields of "))
    return found


def above(found, limits):
    return [f"{what}: {found[what]}, more than {most}" for what, most in limits.items() if found[what] > most]


def sizes(root):
    wrong = []
    for _, paths in sources(root).items():
        for path in paths:
            text = read(path)
            wrong += [f"{short(root, path)}: {name}() has {lines} lines, more than {MOST_FUNCTION}"
                      for name, lines in functions(text) if lines > MOST_FUNCTION]
    readme = read(os.path.join(root, "README.md")).count("\n")
    if readme > MOST_README:
        wrong.append(f"README.md has {readme} lines, more than {MOST_README}")
    words = {name: len(read(name).split()) for name in
             [os.path.join(root, "README.md"), *glob.glob(os.path.join(root, "docs", "*.md"))] if not name.endswith("decisions.md")}
    wrong += above({"words of README.md": words[os.path.join(root, "README.md")], "words for users": sum(words.values())},
                   {"words of README.md": MOST_README_WORDS, "words for users": MOST_WORDS})
    wrong += [f"src/README:{number} has {len(line)} columns, more than {MOST_COLUMNS}"
              for number, line in enumerate(read(os.path.join(root, "src", "README")).split("\n"), 1)
              if len(line) > MOST_COLUMNS]
    return wrong


def typedefs(root):
    names = set()
    for paths in sources(root).values():
        for path in paths:
            for pattern in TYPEDEFS:
                names.update(pattern.findall(read(path)))
    return sorted(names)


def meta(root):
    """What META.json lacks of PGXN's specification, version 1.0.0."""
    found, number = json.loads(read(os.path.join(root, "META.json"))), re.compile(r"\d+\.\d+\.\d+")
    wrong = [f"META.json has no {key}" for key in ("name", "abstract", "version", "maintainer", "license", "provides", "meta-spec")
             if not found.get(key)]
    for name, part in found.get("provides", {}).items():
        wrong += [f"META.json: {name} has no {key}" for key in ("file", "version") if not part.get(key)]
        wrong += [f"META.json: there is no {part[key]}" for key in ("file", "docfile")
                  if part.get(key) and not os.path.exists(os.path.join(root, part[key]))]
    versions = [found.get("version"), found.get("meta-spec", {}).get("version"),
                *(part.get("version") for part in found.get("provides", {}).values()),
                *(version for phase in found.get("prereqs", {}).values() for kind in phase.values() for version in kind.values())]
    return wrong + [f"META.json: {version} is no semantic version" for version in versions if not number.fullmatch(str(version))]


def stale_typedefs(root):
    listed = read(os.path.join(root, "scripts", "typedefs.list")).split()
    now = typedefs(root)
    return [f"scripts/typedefs.list lacks {name}" for name in now if name not in listed] + \
        [f"scripts/typedefs.list has {name}, which is gone" for name in listed if name not in now]


def planted():
    """A tree with one of each violation that a text shows: lint must see them all."""
    with tempfile.TemporaryDirectory() as root:
        files = {
            "src/base/base.h": "", "src/io/ring.h": "", "src/scan/scan.h": "",
            "src/io/up.c": '#include "scan/scan.h"\n',
            "src/scan/private.c": '#include "io/ring.h"\n',
            "src/index/neighbors.h": "", "src/scan/edges.c": '#include "index/neighbors.h"\n',
            "src/scan/fine.c": '#include "io/io.h"\n#include "base/base.h"\n',
            "src/base/function.c": "static void\nLong(void)\n{\n" + "\tx();\n" * MOST_FUNCTION + "}\n",
            "src/io/io.h": "\n" * (MOST_HEADER + 1),
            "src/base/parameters.c": "int\nMany(int a, void (*b) (int, int), " + "int c, " * (MOST_PARAMETERS - 2) + "int d)\n{\n}\n"
                                     "int\nFew(void (*b) (int, int), " + "int c, " * (MOST_PARAMETERS - 2) + "int d)\n{\n}\n",
            "src/elsewhere/file.c": "",
            "servers/base/file.c": "",
            "src/plan/interface.h": "", "src/plan/plan.h": "", "servers/remote/remote.h": "",
            "servers/queries/fine.c": '#include "plan/interface.h"\n#include "remote/remote.h"\n#include "libpq-fe.h"\n',
            "servers/queries/private.c": '#include "plan/plan.h"\n',
            "src/plan/servers.c": '#include "remote/remote.h"\n',
            "src/plan/libpq.c": '#include "libpq-fe.h"\n',
            "README.md": "x\n" * (MOST_README_WORDS + 1), "docs/page.md": "x " * MOST_WORDS, "src/README": "x" * (MOST_COLUMNS + 1) + "\n",
            "scripts/typedefs.list": "Gone\n", "META.json": '{"name": "x", "abstract": "x", "version": "1.0", "maintainer": "x",'
                         '"meta-spec": {"version": "1.0.0"}, "provides": {"x": {"file": "sql/gone.sql", "version": "1.0.0"}}}',
            "src/base/type.h": "typedef struct New\n{\n\tint\t\t\tx;\n} New;\n",
        }
        for name, text in files.items():
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        seen = unknown_rooms(root) + includes(root) + libpq(root) + sizes(root) + wide(root) + stale_typedefs(root) + meta(root) + \
            above({"more": 2, "as many": 1}, {"more": 1, "as many": 1})
    wanted = ("src/elsewhere is no room", "servers/base is no room", "servers/queries/private.c includes plan/plan.h",
              "src/plan/servers.c includes remote/remote.h", "src/plan/libpq.c includes libpq-fe.h", "src/io/up.c includes scan/scan.h", "src/scan/private.c includes io/ring.h",
              "src/scan/edges.c includes index/neighbors.h",
              "Long() has", "README.md has", "src/README:1 has", "lacks New", "has Gone", "META.json has no license", "META.json: there is no sql/gone.sql",
              "META.json: 1.0 is no semantic", "Many() has", "src/io/io.h has",
              "more: 2", "words of README.md: ", "words for users: ")
    missing = [f"planted, but not seen: {text}" for text in wanted if not any(text in line for line in seen)]
    if len(seen) != len(wanted):
        missing.append("seen: " + "; ".join(seen))
    struct = "typedef struct A\n{\n\tint\t\t\tx, y;\t/* of a; */\n\tbool\t\t(*f) (int, int);\n} A;\nstruct B\n{\n\tint z;\n};\n"
    if (fields(struct, "A"), fields(struct, "B"), fields(struct, "C")) != (3, 1, 0):
        missing.append("fields are not counted")
    if components({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) != [["a", "b", "c"]]:
        missing.append("a circle of three is not seen")
    return missing


def table(root):
    graph = calls(root)
    for room in reversed(ROOMS):
        paths = sources(root)[room]
        lines = sum(read(path).count("\n") for path in paths)
        arrows = collections.Counter()
        for name, others in graph.items():
            for other, symbols in others.items():
                if name.startswith(room + "/") and not other.startswith(room + "/"):
                    arrows[other.split("/")[0]] += len(symbols)
        print(f"{room:10} {len(paths):3} files {lines:5} lines -> " +
              ", ".join(f"{to} {count}" for to, count in sorted(arrows.items(), key=lambda x: -ROOMS.index(x[0]))))
    print(f"circles: {len(components(graph))}")
    for what, count in totals(root).items():
        print(f"{what}: {count} of {TOTALS[what]}")


def main(arguments):
    options = [a for a in arguments if a.startswith("--")]
    root = ([a for a in arguments if not a.startswith("--")] + [os.path.join(os.path.dirname(__file__), "..", "..")])[0]
    root = os.path.abspath(root)
    if "--rooms" in options:
        return table(root)
    if "--typedefs" in options:
        return print("\n".join(typedefs(root)))
    checks = (("violations that were planted are seen", planted()),
              ("each folder of src/ and servers/ is a room", unknown_rooms(root)),
              ("rooms include only what is below them, by its header", includes(root)),
              ("rooms call only what is below them", room_calls(root)),
              ("libpq and foreign tables are for servers/", libpq(root)),
              ("the libraries have no symbol in common", in_both(root)),
              ("no files call each other in a circle", circles(root)),
              ("files, functions and the two READMEs keep to their sizes", sizes(root)),
              ("functions take few parameters, and rooms show little", wide(root)),
              ("no total is larger than it was", above(totals(root), TOTALS)),
              ("scripts/typedefs.list is up to date", stale_typedefs(root)),
              ("META.json is what PGXN takes", meta(root)))
    for number, (what, wrong) in enumerate(checks, 1):
        print(f"{'not ' if wrong else ''}ok {number} - {what}")
        for line in wrong:
            print(f"# {line}")
    print(f"1..{len(checks)}")
    return sys.exit(any(wrong for _, wrong in checks))


main(sys.argv[1:])
