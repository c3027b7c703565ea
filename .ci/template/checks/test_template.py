"""The template, expanded with each set of parameters, keeps every rule."""

import itertools
import re
import unittest

from checks import parameters, policies, rules, template

RULES = [
    rules.schedule, rules.order, rules.schema, rules.functions, rules.storage, rules.names, rules.credentials,
    policies.least, policies.bound, policies.roles,
]


class TemplateTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.source = template.source()

    def check(self, changes):
        expanded = template.Expanded(self.source, changes)
        faults = expanded.broken_rules()
        for rule in RULES:
            faults += rule(expanded)
        self.assertEqual(faults, [])


class ParameterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.source = template.source()

    def test_every_source_of_credentials_goes_with_every_way_to_migrate(self):
        for (database, first), (migration, second) in itertools.product(parameters.DATABASES.items(), parameters.MIGRATIONS.items()):
            with self.subTest(f"{database}, {migration}"):
                expanded = template.Expanded(self.source, first | second)
                self.assertEqual(expanded.broken_rules() + rules.credentials(expanded) + policies.least(expanded), [])

    def test_what_is_taken_the_functions_take_and_nothing_of_it_is_ignored(self):
        taken = refused = 0
        for (database, first), (migration, second) in itertools.product(parameters.DATABASES.items(), parameters.MIGRATIONS.items()):
            for flags in itertools.product([False, True], repeat=len(parameters.BESIDE)):
                beside = {name: value for (name, value), flag in zip(parameters.BESIDE.items(), flags) if flag}
                with self.subTest(f"{database}, {migration}, {', '.join(beside)}"):
                    expanded = template.Expanded(self.source, first | second | beside)
                    if expanded.broken_rules():
                        refused += 1
                        continue
                    taken += 1
                    self.assertEqual(rules.credentials(expanded), [])
                    for name, value in beside.items():
                        self.assertIn(value, str(expanded.resources), f"{name} changes nothing")
        self.assertEqual((taken, refused), (25, 119))  # a secret 4 + 4 + 2, IAM 4 + 2 + 1, a URL 2 + 4 + 2

    def test_patterns_take_what_is_right_and_nothing_else(self):
        patterns = {n: p["AllowedPattern"] for n, p in self.source["Parameters"].items() if "AllowedPattern" in p}
        self.assertEqual(set(patterns), set(parameters.PATTERNS) | set(parameters.SAME_PATTERN))
        for name, other in parameters.SAME_PATTERN.items():
            self.assertEqual(patterns[name], patterns[other], name)
        for name, (good, bad) in parameters.PATTERNS.items():
            for text in good:
                self.assertTrue(re.fullmatch(patterns[name], text), f"{name} refuses {text!r}")
            for text in bad:
                self.assertFalse(re.fullmatch(patterns[name], text), f"{name} takes {text!r}")


def keeps_every_rule(changes):
    return lambda self: self.check(changes)


for number, (name, changes) in enumerate(parameters.GOOD.items()):
    test = keeps_every_rule(changes)
    test.__doc__ = f"expanded: {name}"
    setattr(TemplateTest, f"test_{number:02}_{name.replace(' ', '_').replace(',', '')}", test)


class RulesSectionTest(unittest.TestCase):
    """CloudFormation refuses parameters that contradict each other before it creates anything."""

    @classmethod
    def setUpClass(cls):
        cls.source = template.source()

    def check(self, changes, reason):
        broken = template.Expanded(self.source, changes).broken_rules()
        self.assertTrue(any(reason in text for text in broken), f"got {broken}, want {reason!r}")


def refused(changes, reason):
    return lambda self: self.check(changes, reason)


for number, (name, (changes, reason)) in enumerate(parameters.REFUSED.items()):
    setattr(RulesSectionTest, f"test_{number:02}_{name.replace(' ', '_')}", refused(changes, reason))
