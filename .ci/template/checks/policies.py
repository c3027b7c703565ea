"""Who may do what: the whole list of grants that a set of parameters must lead to, and no more."""

from checks.template import ACCOUNT, REGION

ROLES = {"DispatchRole": "lambda", "MigrateRole": "lambda", "ScheduleRole": "scheduler"}

# The only actions that may be granted on everything: AWS knows no narrower resource for them.
UNBOUND = {
    "ec2:CreateNetworkInterface", "ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets", "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses", "ec2:UnassignPrivateIpAddresses", "xray:PutTraceSegments", "xray:PutTelemetryRecords",
    "ses:GetAccount",
}


def many(value):
    return value if isinstance(value, list) else [value]


def split(text):
    return [part for part in text.split(",") if part]


def statements(x):
    for role, resource in x.of_type("AWS::IAM::Role").items():
        for policy in resource["Properties"].get("Policies", []):
            for statement in policy["PolicyDocument"]["Statement"]:
                yield role, statement


def grants(x):
    """Every (role, action, resource), each key's with the services it may be used through."""
    found = set()
    for role, statement in statements(x):
        for action in many(statement["Action"]):
            for resource in many(statement["Resource"]):
                via = [v for test in statement.get("Condition", {}).values() for v in many(test["kms:ViaService"])]
                found.add((role, action, resource, *sorted(via)))
    return found


def expected(x):
    """The grants by the template's promise; written from the parameters, not from the template."""
    p, want = x.parameters, set()

    def grant(role, actions, resources, *via):
        want.update((role, action, resource, *via) for action in actions for resource in resources)

    logs, both = ["logs:CreateLogStream", "logs:PutLogEvents"], ("DispatchRole", "MigrateRole")
    grant("DispatchRole", logs, ["${DispatchLogs.Arn}"])
    grant("MigrateRole", logs, ["${MigrateLogs.Arn}"])
    grant("ScheduleRole", ["lambda:InvokeFunction"], ["${Dispatch.Arn}"])
    for role in ("DispatchRole", "ScheduleRole"):
        grant(role, ["sqs:SendMessage"], ["${DeadLetters.Arn}"])
    read = ["secretsmanager:GetSecretValue"]
    grant("DispatchRole", read, split(p["DatabaseSecretArn"]) + split(p["RoutesSecretArn"]) + split(p["SecretArns"]))
    migration = p["MigrationSecretArn"] or ("" if p["MigrationUrl"] else p["DatabaseSecretArn"])
    grant("MigrateRole", read, split(migration))
    login = f"arn:aws:rds-db:{REGION}:{ACCOUNT}:dbuser:"
    if p["DatabaseIamAuth"] == "true":
        grant("DispatchRole", ["rds-db:connect"], [f"{login}{p['DatabaseResourceId']}/{p['DatabaseUser']}"])
        if not p["MigrationSecretArn"] and not p["MigrationUrl"]:
            target = p["MigrationResourceId"] or p["DatabaseResourceId"]
            grant("MigrateRole", ["rds-db:connect"], [f"{login}{target}/{p['MigrationUser'] or p['DatabaseUser']}"])
    grant("DispatchRole", ["sns:Publish", "sns:GetTopicAttributes"], split(p["SnsTopicArns"]))
    send = ["ses:SendEmail", "ses:SendTemplatedEmail", "ses:SendBulkEmail", "ses:SendBulkTemplatedEmail"]
    grant("DispatchRole", send, split(p["SesArns"]))
    grant("DispatchRole", ["sqs:SendMessage"], split(p["DiscardQueueArns"]))
    grant("DispatchRole", ["events:PutEvents"], split(p["DiscardBusArns"]))
    use, sqs, own = ["kms:Decrypt", "kms:GenerateDataKey"], f"sqs.{REGION}.amazonaws.com", f"lambda.{REGION}.amazonaws.com"
    grant("DispatchRole", use, split(p["SnsKmsKeyArns"]), "sns.*.amazonaws.com")
    grant("DispatchRole", use, split(p["KmsKeyArn"]), own, sqs)
    grant("ScheduleRole", use, split(p["KmsKeyArn"]), sqs)
    grant("MigrateRole", ["kms:Decrypt"], split(p["KmsKeyArn"]), own)
    for role in both:
        grant(role, ["kms:Decrypt"], split(p["SecretsKmsKeyArns"]), "secretsmanager.*.amazonaws.com")
        grant(role, UNBOUND, ["*"])
    want -= {("MigrateRole", "ses:GetAccount", "*")}
    if not p["SesArns"]:
        want -= {("DispatchRole", "ses:GetAccount", "*")}
    if not p["SubnetIds"]:
        want = {g for g in want if not g[1].startswith("ec2:")}
    if p["Tracing"] == "false":
        want = {g for g in want if not g[1].startswith("xray:")}
    return want


def least(x):
    """Grants are exactly the expected ones."""
    got, want = grants(x), expected(x)
    return [f"granted without need: {g}" for g in sorted(got - want)] + [f"not granted: {g}" for g in sorted(want - got)]


def bound(x):
    """Every statement allows named actions on named resources; * stands alone, for actions that know no other."""
    faults = []
    for role, statement in statements(x):
        actions, resources = many(statement["Action"]), many(statement["Resource"])
        if statement["Effect"] != "Allow" or "NotAction" in statement or "NotResource" in statement or not resources:
            faults.append(f"{role}: {statement}")
        faults += [f"{role}: action {a}" for a in actions if "*" in a]
        for resource in resources:
            unbound = resource == "*" and set(actions) <= UNBOUND
            exact = "*" not in resource and (resource.startswith("arn:aws:") or resource.startswith("${"))
            if not unbound and not exact:
                faults.append(f"{role}: {actions} on {resource!r}")
        if any(a.startswith("kms:") for a in actions) and "Condition" not in statement:
            faults.append(f"{role}: {actions} by whatever service")
    return faults


def roles(x):
    """The roles are ours: trusted by one service, no managed policies, within the boundary."""
    found = x.of_type("AWS::IAM::Role")
    faults = [] if set(found) == set(ROLES) else [f"roles: {sorted(found)}"]
    faults += [f"policy {n}" for kind in ("Policy", "ManagedPolicy") for n in x.of_type(f"AWS::IAM::{kind}")]
    faults += [f"permission {n}" for n in x.of_type("AWS::Lambda::Permission")]
    for name, resource in found.items():
        p = resource["Properties"]
        if p.get("ManagedPolicyArns"):
            faults.append(f"{name}: managed policies {p['ManagedPolicyArns']}")
        if p.get("PermissionsBoundary", "") != x.parameters["PermissionsBoundaryArn"]:
            faults.append(f"{name}: boundary {p.get('PermissionsBoundary')}")
        trust = p["AssumeRolePolicyDocument"]["Statement"]
        if [s["Principal"] for s in trust] != [{"Service": f"{ROLES.get(name)}.amazonaws.com"}]:
            faults.append(f"{name}: trusted by {trust}")
    return faults
