"""Each mistake in a template is caught by the rule that is there for it: the checks can fail."""

import unittest

from checks import parameters, policies, rules, template


def properties(t, name):
    return t["Resources"][name]["Properties"]


def schedule(t):
    return properties(t, "Dispatch")["Events"]["Schedule"]["Properties"]


def first_statement(t, role):
    return properties(t, role)["Policies"][0]["PolicyDocument"]["Statement"][0]


def assign(where, key, value):
    return lambda t: where(t).__setitem__(key, value)


def remove(where, key):
    return lambda t: where(t).pop(key)


def of(name):
    return lambda t: properties(t, name)


def variables(name):
    return lambda t: properties(t, name)["Environment"]["Variables"]


def grant_all(t):
    policies_of = properties(t, "DispatchRole")["Policies"]
    policies_of.append({"PolicyName": "more", "PolicyDocument": {"Statement": [
        {"Effect": "Allow", "Action": "sns:Publish", "Resource": "*"}]}})


def statement(role):
    return lambda t: first_statement(t, role)


MISTAKES = {
    "a fixed schedule name": (lambda t: schedule(t).pop("OmitName"), rules.names),
    "no input": (remove(schedule, "Input"), rules.schedule),
    "an input of another source": (assign(schedule, "Input", '{"source": "cron"}'), rules.schedule),
    "an input with a key that dispatch refuses": (assign(schedule, "Input", '{"source": "schedule", "mode": 1}'), rules.schedule),
    "an input without what the sample has": (assign(schedule, "Input", '{"source": "schedule", "scheduledTime": "x"}'), rules.schedule),
    "a fixed state": (assign(schedule, "State", "DISABLED"), rules.schedule),
    "schedule's retries": (remove(schedule, "RetryPolicy"), rules.schedule),
    "no dead letters of the schedule": (remove(schedule, "DeadLetterConfig"), rules.schedule),
    "no order": (assign(variables("Dispatch"), "OUTBOX_SCHEMA_VERSION", "2"), rules.order),
    "the function's configuration after the migration": (lambda t: t["Resources"]["Schema"].pop("DependsOn"), rules.order),
    "a migration that nothing asks for": (assign(of("Schema"), "Version", "99"), rules.schema),
    "an hour's wait": (remove(of("Schema"), "ServiceTimeout"), rules.schema),
    "a wait that ends before the function": (assign(of("Schema"), "ServiceTimeout", "299"), rules.schema),
    "another architecture": (assign(of("Dispatch"), "Architectures", ["x86_64"]), rules.functions),
    "logs without an end": (remove(of("Dispatch"), "LoggingConfig"), rules.functions),
    "asynchronous retries": (lambda t: properties(t, "Dispatch")["EventInvokeConfig"].update(MaximumRetryAttempts=2), rules.functions),
    "failed passes go nowhere": (lambda t: properties(t, "Dispatch")["EventInvokeConfig"].pop("DestinationConfig"), rules.functions),
    "no retention": (remove(of("MigrateLogs"), "RetentionInDays"), rules.storage),
    "a log group that two stacks share": (assign(of("DispatchLogs"), "LogGroupName", "/aws/lambda/dispatch"), rules.storage),
    "dead letters in the clear": (assign(of("DeadLetters"), "SqsManagedSseEnabled", False), rules.storage),
    "dead letters for four days": (remove(of("DeadLetters"), "MessageRetentionPeriod"), rules.storage),
    "a fixed function name": (assign(of("Dispatch"), "FunctionName", "dispatch"), rules.names),
    "a fixed role name": (assign(of("DispatchRole"), "RoleName", "dispatch"), rules.names),
    "two sources of credentials": (assign(variables("Migrate"), "DATABASE_URL", "postgres://db/shop"), rules.credentials),
    "no credentials": (assign(variables("Dispatch"), "DATABASE_SECRET_ARN", ""), rules.credentials),
    "a grant on everything": (grant_all, policies.bound),
    "a grant on everything, beside the needed one": (assign(statement("DispatchRole"), "Resource", "*"), policies.bound),
    "all actions of a service": (assign(statement("MigrateRole"), "Action", "logs:*"), policies.bound),
    "a grant without need": (assign(statement("DispatchRole"), "Action", ["logs:PutLogEvents", "logs:DeleteLogStream"]), policies.least),
    "a grant that is missing": (lambda t: properties(t, "MigrateRole").update(Policies=[]), policies.least),
    "a grant for the other function's logs": (
        assign(statement("DispatchRole"), "Resource", {"Fn::GetAtt": ["MigrateLogs", "Arn"]}), policies.least),
    "a role that SAM makes": (remove(schedule, "RoleArn"), policies.roles),
    "a managed policy": (assign(of("DispatchRole"), "ManagedPolicyArns", ["arn:aws:iam::aws:policy/AdministratorAccess"]), policies.roles),
    "a role out of the boundary": (assign(of("DispatchRole"), "PermissionsBoundary", "arn:aws:iam::aws:policy/x"), policies.roles),
    "a role for everybody": (
        lambda t: properties(t, "MigrateRole")["AssumeRolePolicyDocument"]["Statement"][0].update(Principal={"AWS": "*"}),
        policies.roles),
}


class MutationTest(unittest.TestCase):
    def check(self, mutate, rule):
        mutated = template.source()
        mutate(mutated)
        self.assertNotEqual(rule(template.Expanded(mutated, parameters.MINIMAL)), [], "the mistake was not noticed")


def noticed(mutate, rule):
    return lambda self: self.check(mutate, rule)


for number, (name, (mutate, rule)) in enumerate(MISTAKES.items()):
    setattr(MutationTest, f"test_{number:02}_{name.replace(' ', '_').replace(',', '')}", noticed(mutate, rule))
