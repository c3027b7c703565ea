"""Template, documents and events agree."""

import json
import re
import unittest

from checks import documents, rules, template

# Variables that the functions know and that the template leaves alone, each with its reason.
LEFT_OUT = {
    "OUTBOX_ROUTES_FILE": "the bundle's file lies where the function looks for it; other routes come as a parameter or secret",
}


class DocumentsTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.source = template.source()
        cls.variables = {
            name: cls.source["Resources"][name]["Properties"]["Environment"]["Variables"] for name in rules.FUNCTIONS
        }

    def test_dispatch_gets_every_variable_it_knows(self):
        known = {*documents.variables("Dispatch"), *documents.variables("Database"), *documents.route_variables()}
        self.assertEqual(set(self.variables["Dispatch"]), known - set(LEFT_OUT))

    def test_migrate_gets_every_variable_it_knows(self):
        known = {*documents.variables("Migrate"), *documents.variables("Database")}
        self.assertEqual(set(self.variables["Migrate"]), known)

    def test_ranges_and_defaults_are_the_functions_own(self):
        compared = 0
        known = documents.variables("Dispatch") | documents.variables("Database") | documents.variables("Migrate")
        for variable, value in {**self.variables["Migrate"], **self.variables["Dispatch"]}.items():
            if not isinstance(value, dict) or "Ref" not in value or variable not in known:
                continue
            parameter, (default, takes) = self.source["Parameters"][value["Ref"]], known[variable]
            if parameter["Type"] == "Number":
                with self.subTest(variable):
                    want = re.match(r"(\d+)\.\.(\d+)", takes).groups()
                    self.assertEqual((str(parameter["MinValue"]), str(parameter["MaxValue"])), want)
                    self.assertEqual(f"`{parameter['Default']}`", default)
                    compared += 1
            elif "AllowedValues" in parameter:
                with self.subTest(variable):
                    allowed = {v for v in parameter["AllowedValues"] if v != ""}
                    self.assertEqual(allowed, set(re.findall(r"`([^`]+)`", takes)))
                    compared += 1
        self.assertGreaterEqual(compared, 11)

    def test_each_parameter_is_described_and_in_one_group(self):
        groups = self.source["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
        grouped = [name for group in groups for name in group["Parameters"]]
        self.assertEqual(sorted(grouped), sorted(self.source["Parameters"]))
        for name, parameter in self.source["Parameters"].items():
            self.assertIn("Description", parameter, name)
            self.assertIn("Default", parameter, f"{name} would have to be given by everybody")

    def test_what_holds_a_secret_is_not_echoed(self):
        hidden = {name for name, parameter in self.source["Parameters"].items() if parameter.get("NoEcho")}
        self.assertEqual(hidden, {"DatabaseUrl", "MigrationUrl", "Routes", "WebhookUrl", "WebhookSecret"})
        self.assertLessEqual({n for n in self.source["Parameters"] if re.search("(Url|Secret|Routes|Password|Token|Key)$", n)}, hidden)
        # Whatever reaches a variable of the routes may be a secret.
        for variable in documents.route_variables():
            self.assertIn(self.variables["Dispatch"][variable]["Ref"], hidden, variable)

    def test_a_webhook_fits_into_the_shortest_timeout(self):
        default = re.search(r"^\| `http.timeout` \|.*?\| `(\d+)s` \|", documents.ROUTES_PAGE.read_text(), re.MULTILINE)
        self.assertGreater(self.source["Parameters"]["DispatchTimeout"]["MinValue"], int(default.group(1)) + 7)

    def test_the_parameter_table_is_current(self):
        self.assertEqual(documents.DEPLOY.read_text(), documents.current(), "run .ci/template/run -update")

    def test_env_json_names_variables_of_the_template(self):
        # sam local invoke passes on only what the template declares.
        env = json.loads((template.ROOT / "events" / "env.json").read_text())
        self.assertLessEqual(set(env), set(rules.FUNCTIONS))
        for name, values in env.items():
            self.assertLessEqual(set(values), set(self.variables[name]), name)

    def test_the_sample_of_an_update_asks_for_the_newest_migration(self):
        event = json.loads((template.ROOT / "events" / "custom-resource-create.json").read_text())
        self.assertEqual(event["ResourceProperties"]["Version"], str(rules.newest_migration()))

    def test_the_template_has_no_aliases(self):
        # CloudFormation does not take them, though sam build would write them out.
        self.assertEqual(re.findall(r"^[^#\"]*[:-] [&*]\w+", template.PATH.read_text(), re.MULTILINE), [])
