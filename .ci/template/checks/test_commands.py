"""What README.md and docs/deploy.md tell to type, as SAM reads it; and what it costs."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import click
import yaml
from samcli.cli.cli_config_file import ConfigProvider
from samcli.cli.types import CfnParameterOverridesType
from samcli.commands.build.command import cli as sam_build
from samcli.commands.deploy.command import cli as sam_deploy

from checks import documents, parameters, template

README = template.ROOT / "README.md"
SECRETS = {"$db": parameters.secret("shop/outbox"), "$routes": parameters.secret("shop/routes")}  # what the shell fills in


def blocks(path, *languages):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)
    return [text for language, text in found if language in languages]


def configuration(path, command):
    with click.Context(command):
        return ConfigProvider("parameters", [command.name])(path, "default", [command.name])


def commands(path, start):
    """The command lines of a document that begin like this, split as a shell does."""
    for block in blocks(path, "", "sh"):
        for line in block.replace("\\\n", "").splitlines():
            if line.startswith(start):
                yield [re.sub(r"\$\w+", lambda m: SECRETS[m[0]], word) for word in shlex.split(line)]


def overrides(values):
    return CfnParameterOverridesType().convert(values, None, None)


class CommandsTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.source = template.source()

    def check_parameters(self, given):
        self.assertLessEqual(set(given), set(self.source["Parameters"]))
        for name, value in given.items():
            parameter = self.source["Parameters"][name]
            for item in value.split(",") if parameter["Type"] == "CommaDelimitedList" else [value]:
                self.assertRegex(item, f"^(?:{parameter.get('AllowedPattern', '(?s:.*)')})$", name)
        self.assertEqual(template.Expanded(self.source, given).broken_rules(), [])

    def test_deployments_give_sam_what_they_seem_to(self):
        found = [c for path in (README, documents.DEPLOY) for c in commands(path, "sam deploy ") if "--parameter-overrides" in c]
        read = [overrides(tuple(command[command.index("--parameter-overrides") + 1:])) for command in found]
        for command, given in zip(found, read):
            with self.subTest(" ".join(command)):
                self.check_parameters(given)
                self.assertEqual(len(given), len(command) - command.index("--parameter-overrides") - 1, "a parameter was lost")
        self.assertEqual(len(read), 3)
        self.assertEqual(read[2]["ScheduleExpression"], "rate(5 minutes)")
        routes = yaml.safe_load(read[2]["Routes"])
        self.assertEqual(routes["destinations"]["crm"]["http"]["url"], "https://crm.example.com/hooks")
        self.assertEqual(routes["routes"], {"order.placed": {"to": "crm"}})

    def test_the_sample_of_a_configuration_file_is_read(self):
        (text,) = blocks(documents.DEPLOY, "toml")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "samconfig.toml"
            path.write_text(text)
            deploy, build = configuration(path, sam_deploy), configuration(path, sam_build)
        for values, command in ((deploy, sam_deploy), (build, sam_build)):
            self.assertTrue(values)
            self.assertLessEqual(set(values), {p.name for p in command.params})
        given = overrides(deploy["parameter_overrides"])
        self.check_parameters(given)
        self.assertEqual(set(given), {"DatabaseSecretArn", "RoutesSecretArn", "ScheduleExpression"})
        self.assertEqual(given["ScheduleExpression"], "rate(5 minutes)")

    def test_the_routes_of_the_readme_get_their_values(self):
        (routes,) = blocks(README, "yaml")
        (program,) = re.findall(r"\$\(python3 -c '(.*?)' <routes.yaml\)", README.read_text())
        # A value with what YAML and shells care for; it stands in quotes.
        environment = os.environ | {"CRM_URL": "https://crm.example.com/hooks?a=1&b=#x", "CRM_SECRET": "whsec_c2VjcmV0+/=="}
        done = subprocess.run([sys.executable, "-c", program], input=routes, env=environment, text=True, check=True, stdout=subprocess.PIPE)
        self.assertEqual(yaml.safe_load(done.stdout), {
            "version": 1,
            "destinations": {"crm": {"http": {"url": environment["CRM_URL"], "secrets": [environment["CRM_SECRET"]], "timeout": "10s"}}},
            "routes": {"order.placed": {"to": "crm"}},
        })

    def test_the_example_of_costs_adds_up_for_the_command_above_it(self):
        text = documents.DEPLOY.read_text()
        table = text.split("| | month |")[1].split("\n\n")[0]
        parts = [float(x) for x in re.findall(r"\| \$([\d.]+) \|", table)]
        (total,) = re.findall(r"\*\*sum\*\* \| \*\*\$([\d.]+)\*\*", table)
        self.assertEqual(len(parts), 6)
        self.assertEqual(f"{sum(parts):.2f}", total)
        self.assertIn(f"(the example: ${total} a\nmonth)", README.read_text())
        first = " ".join(next(commands(documents.DEPLOY, "sam deploy ")))
        self.assertEqual(first.count("arn:aws:secretsmanager:"), 2)
        self.assertIn("| two secrets: 2 · ($0.40 + 4,320 calls) | $" + f"{2 * (0.40 + 4320 * 0.05 / 10_000):.3f} |", table)
