"""The linters of others: cfn-lint and sam validate."""

import tempfile
import unittest
from pathlib import Path

from checks import commands, template


class ToolsTest(unittest.TestCase):
    def test_cfn_lint_finds_nothing(self):
        code, out = commands.run([*commands.CFN_LINT, "-r", "us-east-1", "eu-central-1", "-t", str(template.PATH)], template.ROOT)
        self.assertEqual((code, out.strip()), (0, ""))

    def test_sam_validate_finds_nothing(self):
        code, out = commands.run([*commands.SAM, "validate", "--lint", "--template", str(template.PATH)], template.ROOT)
        self.assertEqual(code, 0, out)

    def test_cfn_lint_would_find_something(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "template.yaml"
            path.write_text(template.PATH.read_text().replace("RetentionPeriod: 1209600", "RetentionPeriod: 12096000"))
            code, out = commands.run([*commands.CFN_LINT, "-r", "us-east-1", "-t", str(path)], template.ROOT)
        self.assertNotEqual(code, 0)
        self.assertIn("12096000", out)
