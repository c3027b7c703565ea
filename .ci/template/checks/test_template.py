"""The template, expanded with each set of parameters, keeps every rule."""

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
