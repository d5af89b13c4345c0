#!/usr/bin/env python3
"""Runs what README.md and docs/*.md show, and holds docs/reference.md to be complete.

    test/docs/run.py HOST       a server's socket folder; prints TAP

Each document begins in a database of its own. A ```sql block is run by psql; the ```text
block that follows it, if any, is its output: a line ending in "..." stands for any end of a
line, and trailing blanks do not count. Of a ```sh block each command is looked up: the goal of make, the
script and its options.
"""
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BLOCK = re.compile(r"^```(sql|sh|text|ini)\n(.*?)^```$", re.M | re.S)
count, failed = 0, 0


def tap(ok, name, diagnosis=""):
    global count, failed
    count += 1
    failed += not ok
    print(f"{'' if ok else 'not '}ok {count} - {name}")
    if not ok:
        for line in diagnosis.split("\n"):
            print(f"# {line}")
    sys.stdout.flush()


def psql(host, database, text, *options):
    result = subprocess.run(["psql", "-X", "-q", "-h", host, "-U", "postgres", "-d", database, *options],
                            input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, "PGOPTIONS": "-c client_min_messages=warning"}, check=False)
    return result.stdout


def same(shown, got):
    shown = [line.rstrip() for line in shown.rstrip("\n").split("\n")]
    got = [line.rstrip() for line in got.rstrip("\n").split("\n")]
    if shown[-1].endswith("..."):
        got = got[:len(shown)]
    return len(shown) == len(got) and all(
        b.startswith(a[:-3]) if a.endswith("...") else a == b for a, b in zip(shown, got))


def run_sql(host, database, name, text, shown):
    got = psql(host, database, text)
    if shown is None:
        tap("ERROR" not in got, name, f"{text}\n{got}")
    else:
        tap(same(shown, got), name, f"shown:\n{shown}\ngot:\n{got}")


def known_command(line):
    """None if a command line can be what it says, else what is wrong with it."""
    words = [word for word in line.split("#")[0].split() if not re.match(r"^[A-Z_]+=", word)]
    if not words:
        return None
    if words[0] == "make":
        run = subprocess.run(["make", "-n", *[word for word in words[1:] if "=" not in word]], cwd=ROOT, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return None if run.returncode == 0 else run.stdout
    if words[0] == "apt-get":
        known = open(os.path.join(ROOT, "scripts", "install-deps.sh"), encoding="utf-8").read().lower()
        lost = [word for word in words[2:] if re.sub("-1[5-8]\\b", "-$version", word) not in known and word not in ("build-essential",)]
        return f"scripts/install-deps.sh does not know {lost}" if lost else None
    if "/" in words[0]:
        path = os.path.join(ROOT, words[0])
        if not os.access(path, os.X_OK):
            return f"{words[0]} is no program"
        text = open(path, encoding="utf-8").read()
        if words[0].startswith("bench/"):
            text += "".join(open(file, encoding="utf-8").read() for file in glob.glob(os.path.join(ROOT, "bench", "*.py")))
        lost = [word for word in words[1:] if word.startswith("--") and word not in text]
        return f"{words[0]} does not know {lost}" if lost else None
    return f"{words[0]} is not known here"


def run_document(host, path):
    name = os.path.relpath(path, ROOT)
    database = "docs_" + re.sub(r"\W", "_", name).lower()
    psql(host, "postgres", f"CREATE DATABASE {database}")
    blocks = BLOCK.findall(open(path, encoding="utf-8").read())
    for number, (kind, text) in enumerate(blocks):
        follower = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
        if kind == "sql":
            run_sql(host, database, f"{name}, block {number + 1}", text, follower[1] if follower[0] == "text" else None)
        elif kind == "sh":
            for line in text.replace("\\\n", " ").strip().split("\n"):
                wrong = known_command(line)
                tap(wrong is None, f"{name}: {line}", wrong or "")
    return len(blocks)


def anchors(path):
    """Those of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", open(path, encoding="utf-8").read(), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def links(path):
    text = open(path, encoding="utf-8").read()
    wrong = []
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", text):
        page = os.path.join(os.path.dirname(path), target) if target else path
        if "://" not in target and (not os.path.exists(page) or anchor and page.endswith(".md") and anchor not in anchors(page)):
            wrong.append(f"{target}#{anchor}")
    tap(not wrong, f"{os.path.relpath(path, ROOT)}: links lead somewhere", " ".join(wrong))


def exporter(host):
    """The queries for Prometheus."""
    text = open(os.path.join(ROOT, "docs", "monitoring", "postgres_exporter.yaml"), encoding="utf-8").read()
    queries = re.findall(r'query: "(.*)"', text)
    got = psql(host, "docs_docs_operations_md", "".join(query + ";\n" for query in queries))
    tap(len(queries) == 2 and "ERROR" not in got, "postgres_exporter.yaml: its queries are answered", got)


def reference(host):
    """Each setting, option, function, column and error of the server stands in the reference."""
    text = open(os.path.join(ROOT, "docs", "reference.md"), encoding="utf-8").read()
    database = "docs_docs_reference_md"
    names = {
        "setting": "SELECT name FROM pg_settings WHERE name ~ '^pipeann(_servers)?[.]' AND name <> 'pipeann.pause_at'",
        "function": "SELECT p.proname FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.deptype = 'e'"
                    " JOIN pg_extension e ON e.oid = d.refobjid WHERE e.extname IN ('pipeann', 'pipeann_servers')"
                    " AND NOT EXISTS (SELECT 1 FROM pg_amproc a WHERE a.amproc = p.oid)",
        "column": "SELECT unnest(proargnames[2:]) FROM pg_proc WHERE proname = 'pipeann_index_info'",
        "operator class": "SELECT opcname FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod WHERE amname = 'pipeann'",
    }
    for kind, query in names.items():
        found = psql(host, database, f"CREATE EXTENSION IF NOT EXISTS pipeann_servers CASCADE; {query};", "-At").split()
        lost = [name for name in found if not re.search(r"`" + re.escape(name) + r"[`(]", text)]
        tap(bool(found) and not lost, f"docs/reference.md has each {kind} ({len(found)})", " ".join(lost))
    places = {"user": "session", "superuser": "session", "sighup": "reload", "postmaster": "restart"}
    found = psql(host, database, "SELECT name, context FROM pg_settings WHERE name ~ '^pipeann(_servers)?[.]'"
                 " AND name <> 'pipeann.pause_at'", "-At").split()
    wrong = [line for line in found for name, context in [line.split("|")]
             if not re.search(rf"^\| `{re.escape(name)}` \|.* {places[context]} \|[^|]*\|$", text, re.M)]
    tap(bool(found) and not wrong, "docs/reference.md says where each setting is set", " ".join(wrong))
    cells = [cell for line in text.split("\n") if line.startswith("|") for cell in line.split("|") if len(cell) > 202]
    tap(not cells, "no cell of docs/reference.md has more than 200 characters", "\n".join(cells))
    source = "".join(open(file, encoding="utf-8").read() for tree in ("src", "servers")
                     for file in glob.glob(os.path.join(ROOT, tree, "*", "*.c")))
    options = re.findall(r'add_\w+_reloption\(pipeann_relopt_kind, "(\w+)"', source)
    lost = [name for name in options if f"| `{name}` |" not in text]
    tap(bool(options) and not lost, f"docs/reference.md has each option ({len(options)})", " ".join(lost))
    internal = {"INTERNAL_ERROR", "DATA_CORRUPTED", "UNDEFINED_TABLE"}
    states = {"INDEX_CORRUPTED": "XX002", "INVALID_OBJECT_DEFINITION": "42P17", "PROGRAM_LIMIT_EXCEEDED": "54000",
              "INVALID_PARAMETER_VALUE": "22023", "T_R_SERIALIZATION_FAILURE": "40001",
              "NUMERIC_VALUE_OUT_OF_RANGE": "22003", "FEATURE_NOT_SUPPORTED": "0A000", "DATA_EXCEPTION": "22000",
              "WRONG_OBJECT_TYPE": "42809", "OBJECT_NOT_IN_PREREQUISITE_STATE": "55000",
              "OUT_OF_MEMORY": "53200", "CONFIGURATION_LIMIT_EXCEEDED": "53400",
              "UNDEFINED_COLUMN": "42703", "UNDEFINED_OBJECT": "42704", "DATATYPE_MISMATCH": "42804", "TOO_MANY_COLUMNS": "54011",
              "SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION": "08001", "FDW_OUT_OF_MEMORY": "HV001",
              "S_R_E_PROHIBITED_SQL_STATEMENT_ATTEMPTED": "2F003",
              "INVALID_BINARY_REPRESENTATION": "22P03", "INSUFFICIENT_PRIVILEGE": "42501", "CONNECTION_FAILURE": "08006"}
    raised = set(re.findall(r"errcode\(ERRCODE_(\w+)\)", source)) - internal
    lost = [code for code in raised if states.get(code, code) not in text]
    tap(bool(raised) and not lost, f"docs/reference.md has each error ({len(raised)})", " ".join(lost))


def main(host):
    tap(not same("a\nb", "a\nc") and same("a...", "ab\nc") and known_command("make nonsense") is not None
        and known_command("bench/run --nonsense") is not None, "what is wrong is seen")
    for path in [os.path.join(ROOT, "README.md"), *sorted(glob.glob(os.path.join(ROOT, "docs", "*.md"))),
                 os.path.join(ROOT, "CONTRIBUTING.md")]:
        blocks = run_document(host, path)
        links(path)
        if os.path.basename(path) == "README.md":
            tap(blocks >= 3, "README.md has an example")
    exporter(host)
    reference(host)
    print(f"1..{count}")
    return failed > 0


sys.exit(main(sys.argv[1]))
