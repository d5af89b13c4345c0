"""Runs the tests of the benchmark and prints TAP.

    run.py            tests of its parts
    run.py RESULTS    also the results of `bench/run --quick --out RESULTS`, and those of
                      other commands in folders of their names beside it (test_left.py)
"""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
sys.path.insert(0, HERE)


class Tap(unittest.TestResult):
    def stopTest(self, test):
        super().stopTest(test)
        wrong = [text for one, text in self.failures + self.errors if getattr(one, "test_case", one) is test]
        skipped = [f" # SKIP {reason}" for one, reason in self.skipped if one is test]
        print(f"{'not ' if wrong else ''}ok {self.testsRun} - {test.id()}{''.join(skipped)}", flush=True)
        for line in "".join(wrong).splitlines():
            print("# " + line, flush=True)


def main():
    if len(sys.argv) > 1:
        os.environ["BENCH_RESULTS"] = os.path.abspath(sys.argv[1])
    result = Tap()
    unittest.defaultTestLoader.discover(HERE).run(result)
    print(f"1..{result.testsRun}")
    sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)


if __name__ == "__main__":
    main()
