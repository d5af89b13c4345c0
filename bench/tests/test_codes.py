"""bench/codes/run on real images: what must come out whatever the machine."""
import os
import subprocess
import tempfile
import unittest

import formats
from datasets import fashion

RUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "codes", "run")
ROWS, QUERIES = 4000, 40


def measured(*options):
    """Error and reads of each code, by its name and the way to search."""
    base, queries = fashion.load("/nonexistent")
    with tempfile.TemporaryDirectory() as folder:
        for stem, vectors in (("base", base[:ROWS]), ("query", queries[:QUERIES])):
            with open(os.path.join(folder, f"{stem}.u8bin"), "wb") as file:
                formats.write(file, vectors)
        out = subprocess.run([RUN, folder, *options], check=True, capture_output=True, text=True,
                             env={**os.environ, "PIPEANN_CACHE": os.path.join(folder, "cache")}).stdout
    rows = [line.split(",") for line in out.splitlines()[2:]]
    # a code's name may have commas in it
    return {(",".join(row[1:-8]), row[-6]): (float(row[-7]), float(row[-5])) for row in rows}


class Codes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.found = measured("--bytes", "4", "--target", "0.98", "--modes", "pipe,w1",
                             "--codes", "exact order,twice")

    def test_exact_order_reads_least(self):
        for mode in ("pipe", "w1"):
            exact, pq = self.found["exact order", mode][1], self.found["pq", mode][1]
            self.assertGreater(exact, 0)
            self.assertLess(1.1 * exact, pq)

    def test_errors(self):
        error = {code: found[0] for (code, mode), found in self.found.items() if mode == "pipe"}
        self.assertEqual(error["exact order"], 0)
        self.assertLess(error["pq, twice the bytes"], 0.9 * error["pq"])
        self.assertLess(error["pq"], 0.5)


if __name__ == "__main__":
    unittest.main()
