"""Reads template.yaml and expands it as CloudFormation would: SAM's transformation, then conditions and functions.

References to resources stay as text, ``${Logical}`` or ``${Logical.Attribute}``, so that they can be compared and
followed. Offline; nothing here talks to AWS.
"""

import copy
import logging
import os
import re
from pathlib import Path

os.environ["AWS_DEFAULT_REGION"] = "eu-central-1"  # SAM's transformation asks for one

from samtranslator.translator.transform import transform  # noqa: E402
from samtranslator.yaml_helper import yaml_parse  # noqa: E402

logging.getLogger("samtranslator.metrics").setLevel(logging.ERROR)  # it complains that nobody publishes its metrics

ROOT = Path(__file__).resolve().parents[3]
PATH = ROOT / "template.yaml"

ACCOUNT, REGION, STACK = "123456789012", "eu-central-1", "shop-outbox"
PSEUDO = {
    "AWS::AccountId": ACCOUNT,
    "AWS::Partition": "aws",
    "AWS::Region": REGION,
    "AWS::StackName": STACK,
    "AWS::URLSuffix": "amazonaws.com",
}
NOTHING = object()  # AWS::NoValue
REFERENCE = re.compile(r"\$\{(\w+)(?:\.[\w.]+)?\}")


class NoPolicies:
    """Managed policies by name, of which the template uses none."""

    def load(self):
        return {}


def source():
    """The template as written."""
    return yaml_parse(PATH.read_text())


def defaults(template):
    return {name: str(p.get("Default", "")) for name, p in template["Parameters"].items()}


class Expanded:
    """A template as one set of parameters makes it."""

    def __init__(self, template, changes):
        unknown = set(changes) - set(template["Parameters"])
        if unknown:
            raise ValueError(f"no parameters {unknown}")
        self.template = template
        self.parameters = defaults(template) | changes
        prepared = copy.deepcopy(template)
        prepared["Globals"]["Function"]["CodeUri"] = "s3://bucket/code.zip"
        self.expanded = transform(prepared, dict(self.parameters), NoPolicies())
        self.resources = {}
        for name, resource in self.expanded["Resources"].items():
            if "Condition" not in resource or self.condition(resource["Condition"]):
                self.resources[name] = self.resolve(resource)

    def of_type(self, kind):
        return {name: r for name, r in self.resources.items() if r["Type"] == kind}

    def properties(self, name):
        return self.resources[name]["Properties"]

    def variables(self, function):
        return self.properties(function)["Environment"]["Variables"]

    def needs(self, name):
        """Every resource that CloudFormation finishes before it starts on this one."""
        found, todo = set(), [name]
        while todo:
            resource = self.resources[todo.pop()]
            direct = set(REFERENCE.findall(str(resource)))
            after = resource.get("DependsOn", [])
            direct.update([after] if isinstance(after, str) else after)
            for other in direct & set(self.resources) - found:
                found.add(other)
                todo.append(other)
        return found

    def broken_rules(self):
        """The descriptions of the assertions of section Rules that these parameters break."""
        broken = []
        for rule in self.template["Rules"].values():
            if "RuleCondition" in rule and not self.resolve(rule["RuleCondition"]):
                continue
            broken += [a["AssertDescription"] for a in rule["Assertions"] if not self.resolve(a["Assert"])]
        return broken

    def condition(self, name):
        return self.resolve(self.template["Conditions"][name])

    def parameter(self, name):
        value = self.parameters[name]
        if self.template["Parameters"][name]["Type"] == "CommaDelimitedList":
            return [item.strip() for item in value.split(",")]
        return value

    def reference(self, name):
        if name == "AWS::NoValue":
            return NOTHING
        if name in PSEUDO:
            return PSEUDO[name]
        if name in self.parameters:
            return self.parameter(name)
        return "${" + name + "}"

    def resolve(self, tree):
        if isinstance(tree, list):
            return [item for item in map(self.resolve, tree) if item is not NOTHING]
        if not isinstance(tree, dict):
            return tree
        if len(tree) == 1:
            (key, value), = tree.items()
            if key in FUNCTIONS:
                return FUNCTIONS[key](self, value)
            if key.startswith("Fn::"):
                raise ValueError(f"{key} is new to these checks")
        resolved = {key: self.resolve(value) for key, value in tree.items() if key != "Condition" or isinstance(value, dict)}
        return {key: value for key, value in resolved.items() if value is not NOTHING}


def substitute(expanded, value):
    text, own = (value, {}) if isinstance(value, str) else value
    own = {name: expanded.resolve(v) for name, v in own.items()}

    def one(match):
        name = match.group(1)
        if name in own:
            return own[name]
        return expanded.reference(name) if "." not in name else "${" + name + "}"

    return re.sub(r"\$\{([\w.:]+)\}", one, text)


def attribute(_, value):
    return "${" + (value if isinstance(value, str) else ".".join(value)) + "}"


FUNCTIONS = {
    "Ref": lambda x, v: x.reference(v),
    "Condition": lambda x, v: x.condition(v),
    "Fn::Sub": substitute,
    "Fn::GetAtt": attribute,
    "Fn::If": lambda x, v: x.resolve(v[1] if x.condition(v[0]) else v[2]),
    "Fn::Equals": lambda x, v: x.resolve(v[0]) == x.resolve(v[1]),
    "Fn::Not": lambda x, v: not x.resolve(v[0]),
    "Fn::And": lambda x, v: all(map(x.resolve, v)),
    "Fn::Or": lambda x, v: any(map(x.resolve, v)),
    "Fn::Split": lambda x, v: x.resolve(v[1]).split(v[0]),
    "Fn::Join": lambda x, v: v[0].join(x.resolve(v[1])),
    "Fn::FindInMap": lambda x, v: x.template["Mappings"][v[0]][x.resolve(v[1])][x.resolve(v[2])],
}
