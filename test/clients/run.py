#!/usr/bin/env python3
"""Runs the programs of docs/clients.md and docs/hybrid-search.md, and what bench/ has for others' benchmarks.

    test/clients/run.py SERVER PACKAGES     prints TAP

SERVER is the folder of a server. What the programs need is downloaded to PACKAGES and kept there; what
cannot be is skipped. A program prints the five nearest rows: they must be those of a scan without
indexes, in its order, and the server's log must have a plan with the index (auto_explain).
"""
import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
PAGE, HYBRID = (open(os.path.join(ROOT, "docs", name), encoding="utf-8").read() for name in ("clients.md", "hybrid-search.md"))
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
       "--root-user-action=ignore", "--retries", "1", "--target", ".", "-r")
NPM = ("npm", "install", "--silent", "--no-audit", "--no-fund")


def output(command, **options):
    """What it prints, and whether it went well."""
    try:
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                             timeout=300, **options)
        return run.stdout.strip(), run.returncode == 0
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error), False


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def write(text, *path):
    name = os.path.join(*path)
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)
    return name


def programs(section):
    """Those below a heading of the page."""
    text = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S).group(1)
    return re.findall(r"^```(?:python|js|ruby)\n(.*?)^```$", text, re.M | re.S)


def nearest(table, operator, column="id", row="id = 17", where=""):
    return f"SELECT {column} FROM {table} {where} ORDER BY embedding {operator} (SELECT embedding FROM {table} WHERE {row}) LIMIT 5"


class Clients:
    def __init__(self, server, packages, work):
        self.server, self.packages, self.work = server, packages, work
        self.environment = {**os.environ, "PGHOST": server, "PGUSER": "postgres", "PGDATABASE": "shop"}
        self.count = self.failed = 0

    def tap(self, good, name, diagnosis=""):
        self.count += 1
        self.failed += not good
        print(f"{'' if good else 'not '}ok {self.count} - {name}")
        if not good:
            print("\n".join("# " + line for line in diagnosis.split("\n")))
        sys.stdout.flush()

    def get(self, file, *command):
        """Downloads what FILE of this folder names. The folder where it is, or None and why not."""
        path = os.path.join(HERE, file)
        for name, version in re.findall(r'^\W*([\w-]+)(?:\[\w+\])?(?:==|": ")([\d.]+)', read(path), re.M):
            self.tap(f"{name} {version}" in PAGE, f"docs/clients.md names {name} {version}")
        digest = hashlib.sha256((sys.version + read(path)).encode()).hexdigest()[:12]
        folder = os.path.join(self.packages, f"{file}-{digest}")
        if not os.path.isdir(folder):
            os.makedirs(self.packages, exist_ok=True)
            new = tempfile.mkdtemp(dir=self.packages)
            shutil.copy(path, new)
            said, good = output(command, cwd=new)
            if not good:
                shutil.rmtree(new)
                return None, "not downloaded: " + said.split("\n")[-1][:150]
            os.rename(new, folder)
        return folder, None

    def psql(self, statements, database="shop"):
        return output(["psql", "-XqAt", "-d", database, "-c", statements], env=self.environment)[0]

    def run(self, name, packages, exact, command, times=1):
        """A program in a database of its own, whose last line is the rows as a list."""
        folder, why = packages
        if folder is None:
            self.count += 1
            print(f"ok {self.count} - {name} # SKIP {why}", flush=True)
            return
        self.psql("DROP DATABASE IF EXISTS shop (FORCE)", "postgres")
        self.psql("CREATE DATABASE shop", "postgres")
        self.psql("ALTER DATABASE shop SET session_preload_libraries = auto_explain")
        self.psql("ALTER DATABASE shop SET auto_explain.log_min_duration = 0")
        self.psql("SET client_min_messages = warning; CREATE EXTENSION pipeann CASCADE")
        before = len(read(self.server, "log"))
        said, good = output(command, cwd=self.work, env={
            **self.environment, "PYTHONPATH": os.pathsep.join((folder, self.work)), "NODE_PATH": f"{folder}/node_modules"})
        plans = read(self.server, "log")[before:]
        try:
            got = [str(value) for value in ast.literal_eval(said.split("\n")[-1])]
        except (SyntaxError, ValueError):
            got, good = [], False
        self.tap(good, f"{name}: it runs", said[-2000:])
        wanted = self.psql(f"SET enable_indexscan = off; SET enable_indexonlyscan = off; {exact}").split("\n")
        self.tap(len(got) == 5 and got == wanted, f"{name}: the nearest rows", f"got {got}, wanted {wanted}")
        found = re.findall(r"Index (?:Only )?Scan using (?:\w+_embedding|pgvector_index) on", plans)
        self.tap(len(found) >= times, f"{name}: by the index", plans[-2000:])

    def python(self, name, packages, exact, text, **options):
        self.run(name, packages, exact, [sys.executable, write(text, self.work, "try_" + re.sub(r"\W", "_", name) + ".py")], **options)


DJANGO_SETTINGS = """
SECRET_KEY = "none"
INSTALLED_APPS = ["django.contrib.postgres", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "shop"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""

# Migrations are made, and made again, which finds no change if the index tells all of itself.
DJANGO = """
import os
import django
from django.core.management import call_command
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
django.setup()
call_command("makemigrations", "shop")
call_command("makemigrations", "shop", "--check")
call_command("migrate")
"""

# As ann-benchmarks goes about it, which is no package that could be downloaded: the class that a module of it begins
# with, and each list of arguments in config.yml.
ANN_BENCHMARKS = """
import importlib
import sys
import numpy
import yaml
rows = numpy.random.default_rng(1).normal(size=(5000, 16)).astype(numpy.float32)
for definition in yaml.safe_load(open(sys.argv[1]))["float"]["any"]:
    constructor = getattr(importlib.import_module(definition["module"] + ".module"), definition["constructor"])
    for group in definition["run_groups"].values():
        for options in group["arg_groups"]:
            index = constructor("angular", options)
            index.fit(rows)
            for argument in group["query_args"][0]:
                index.set_query_arguments(argument)
                found = index.query(rows[17], 5)
            print(index, index.get_memory_usage())
            index.done()
print(found.tolist())
"""

# VectorDBBench's own client and interface; of the packages that it wants, only those that a client uses.
VECTORDBBENCH = """
import os
import numpy
from vectordb_bench.backend.clients.api import MetricType
from vectordb_bench.backend.clients.pgvector.pgvector import PgVector
from vectordb_bench.backend.filter import non_filter
from pipeann import PipeannConfig
rows = numpy.random.default_rng(1).normal(size=(5000, 16)).tolist()
config = PipeannConfig(m=16, ef_construction=100, ef_search=100, metric_type=MetricType.COSINE)
client = PgVector(16, {"table_name": "items", "connect_config": {}}, config, drop_old=True)
with client.init():
    print(client.insert_embeddings(rows, range(5000)))
    client.optimize()
    client.prepare_filter(non_filter)
    print(client.conn.execute("SHOW pipeann.ef_search").fetchone())
    found = client.search_embedding(rows[17], 5)
    client.conn.commit()
print(found)
"""

# psycopg prepares what comes again, and PostgreSQL may then make a plan for any vector.
PREPARED = """
with psycopg.connect("dbname=shop", autocommit=True) as connection:
    register_vector(connection)
    for _ in range(20):
        connection.execute("SELECT id FROM items ORDER BY embedding <-> %s LIMIT %s", [embeddings[17], 5])
    connection.execute("SET plan_cache_mode = force_generic_plan")
    nearest = connection.execute("SELECT id FROM items ORDER BY embedding <-> %s LIMIT 5", [embeddings[17]], prepare=True)
    print([number for number, in nearest.fetchall()])
"""


def main(server, packages):
    with tempfile.TemporaryDirectory() as work:
        clients = Clients(server, packages, work)
        python = clients.get("requirements.txt", *PIP, "requirements.txt")
        clients.python("psycopg", python, nearest("items", "<->"), programs("psycopg")[0] + PREPARED, times=22)
        clients.python("SQLAlchemy", python, nearest("items", "<=>", where="WHERE shop = 2"), programs("SQLAlchemy")[0])
        models, query = programs("Django")
        write(DJANGO_SETTINGS, work, "settings.py")
        write("", work, "shop", "__init__.py")
        write(models, work, "shop", "models.py")
        clients.python("Django", python, nearest("shop_item", "<->"), DJANGO + query)
        langchain = clients.get("langchain.txt", *PIP, "langchain.txt")
        store, older_store = programs("LangChain")
        clients.python("LangChain", langchain, nearest("notes", "<=>", "content", "content = 'note 17'"), store)
        # the row with the word is the nearest, too, and the others are behind it in order
        clients.python("LangChain, hybrid", langchain, nearest("notes", "<=>", "content", "content = 'note 17'"),
                       store + re.search(r"^```python\n(.*?)^```$", HYBRID, re.M | re.S).group(1), times=2)
        clients.python("LangChain, PGVector", langchain,
                       nearest("langchain_pg_embedding", "<=>", "document", "document = 'note 17'"), older_store)
        clients.run("Node.js", clients.get("package.json", *NPM), nearest("items", "<->"),
                    ["node", write(programs("Node.js")[0], work, "node.js")])
        rails = (work, None) if output(["ruby", "-e", "require 'active_record'; require 'neighbor'; require 'pg'"])[1] else (
            None, "Debian's ruby-neighbor, ruby-activerecord and ruby-pg are not installed")
        clients.run("Rails", rails, nearest("items", "<->"), ["ruby", write(programs("Rails")[0], work, "rails.rb")])

        algorithms = os.path.join(work, "ann_benchmarks", "algorithms")
        write("class BaseANN:\n    def done(self):\n        pass\n", algorithms, "base", "module.py")
        shutil.copytree(os.path.join(ROOT, "bench", "ann-benchmarks"), os.path.join(algorithms, "pipeann"))
        clients.run("ann-benchmarks", python, nearest("items", "<=>"),
                    [sys.executable, write(ANN_BENCHMARKS, work, "ann.py"), os.path.join(algorithms, "pipeann", "config.yml")])
        folder, why = clients.get("vectordbbench.txt", *PIP, "vectordbbench.txt", "--no-deps")
        if folder and python[0]:
            folder = os.pathsep.join((folder, python[0], os.path.join(ROOT, "bench", "vectordbbench")))
        clients.python("VectorDBBench", (folder, why or python[1]), nearest("items", "<=>"), VECTORDBBENCH)
    print(f"1..{clients.count}")
    return clients.failed > 0


sys.exit(main(*sys.argv[1:]))
