"""Runs the tests of the benchmark and prints TAP.

    run.py            tests of its parts
    run.py RESULTS    also the results of `bench/run --quick --out RESULTS`, and those of
                      other commands in folders of their names beside it (test_left.py)
"""
import os
import sys
import traceback
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
sys.path.insert(0, HERE)


class Tap(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.count = 0

    def line(self, test, word, note=""):
        self.count += 1
        print(f"{word} {self.count} - {test.id()}{note}", flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.line(test, "ok")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.line(test, "ok", f" # SKIP {reason}")

    def explain(self, test, error):
        self.line(test, "not ok")
        for text in "".join(traceback.format_exception(*error)).splitlines():
            print("# " + text, flush=True)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.explain(test, error)

    def addError(self, test, error):
        super().addError(test, error)
        self.explain(test, error)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.explain(subtest, error)


def main():
    if len(sys.argv) > 1:
        os.environ["BENCH_RESULTS"] = os.path.abspath(sys.argv[1])
    suite = unittest.defaultTestLoader.discover(HERE)
    result = Tap()
    suite.run(result)
    print(f"1..{result.count}")
    sys.exit(0 if result.wasSuccessful() and result.count else 1)


if __name__ == "__main__":
    main()
