"""Runs every check; -update rewrites the generated part of docs/deploy.md instead."""

import io
import sys
import time
import unittest

from checks import documents

MODULES = [
    f"checks.test_{name}" for name in ("template", "mutations", "documents", "commands", "tools", "build")
]


def main() -> int:
    if sys.argv[1:] == ["-update"]:
        documents.update()
        return 0
    if sys.argv[1:]:
        print(f"template: takes no arguments or -update, got {sys.argv[1:]}", file=sys.stderr)
        return 2
    started = time.monotonic()
    suite = unittest.defaultTestLoader.loadTestsFromNames(MODULES)
    report = io.StringIO()
    result = unittest.TextTestRunner(stream=report, verbosity=0, buffer=True).run(suite)
    if not result.wasSuccessful() or result.skipped or result.testsRun == 0:
        print(report.getvalue(), "template: a check failed or did not run", sep="\n", file=sys.stderr)
        return 1
    print(f"template: {result.testsRun} checks passed in {time.monotonic() - started:.0f} s")
    return 0


sys.exit(main())
