"""What runs in little have left behind: `bench/run --quick`, and those of other commands beside it."""
import os
import xml.etree.ElementTree

import store

RESULTS = os.environ.get("BENCH_RESULTS", "/nonexistent/bench")


def folder(command):
    return RESULTS if command == "bench" else os.path.join(os.path.dirname(RESULTS), command)


def there(command):
    return os.path.exists(os.path.join(folder(command), "run.json"))


def store_of(command):
    return store.Store(folder(command))


def text(command, name):
    with open(os.path.join(folder(command), name), encoding="utf-8") as file:
        return file.read()


def check_picture(test, command, name):
    path = os.path.join(folder(command), "plots", name)
    with open(path + ".png", "rb") as file:
        content = file.read()
    test.assertTrue(content.startswith(b"\x89PNG\r\n\x1a\n") and content.endswith(b"IEND\xaeB`\x82"), name)
    test.assertGreater(len(content), 10000, name)
    test.assertTrue(xml.etree.ElementTree.parse(path + ".svg").getroot().tag.endswith("svg"))
