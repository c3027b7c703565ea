"""What must hold of an expanded template. Each rule returns the faults it found, in words; none is an empty list."""

import json

from checks.template import ROOT, STACK

FUNCTIONS = ("Dispatch", "Migrate")
SAMPLE = ROOT / "events" / "schedule.json"
FIXED_NAMES = {"FunctionName", "RoleName", "QueueName", "Name", "ManagedPolicyName"}


def same(what, got, want):
    return [] if got == want else [f"{what}: got {got!r}, want {want!r}"]


def newest_migration():
    return max(int(path.name.split("_")[0]) for path in (ROOT / "sql").glob("[0-9]*.sql"))


def schedule(x):
    """One schedule, with an input that dispatch understands, no retries and no name."""
    found = x.of_type("AWS::Scheduler::Schedule")
    if len(found) != 1 or x.of_type("AWS::Events::Rule"):
        return [f"schedules: got {list(found)}, want one, and no rule"]
    (p,) = (r["Properties"] for r in found.values())
    target = p["Target"]
    faults = same("schedule's state", p.get("State"), x.parameters["ScheduleState"])
    faults += same("schedule's expression", p.get("ScheduleExpression"), x.parameters["ScheduleExpression"])
    faults += same("schedule's window", p.get("FlexibleTimeWindow"), {"Mode": "OFF"})
    faults += same("schedule's target", target["Arn"], "${Dispatch.Arn}")
    faults += same("schedule's role", target["RoleArn"], "${ScheduleRole.Arn}")
    faults += same("schedule's retries", target.get("RetryPolicy"), {"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60})
    faults += same("schedule's dead letters", target.get("DeadLetterConfig"), {"Arn": "${DeadLetters.Arn}"})
    if "Input" not in target:
        return [*faults, "schedule's input: none, so that the schedule would send its own"]
    fields = json.loads(target["Input"])
    faults += same("schedule's input: the keys of events/schedule.json", list(fields), list(json.loads(SAMPLE.read_text())))
    faults += same("schedule's source", fields.pop("source", None), "schedule")
    taken = {"scheduleArn", "scheduledTime", "executionId", "attemptNumber"}
    return faults + [f"schedule's input: {name} is not taken" for name in set(fields) - taken]


def order(x):
    """The tables fit before dispatch is updated and scheduled."""
    version = x.variables("Dispatch")["OUTBOX_SCHEMA_VERSION"]
    if x.parameters["MigrateOnDeploy"] == "false":
        return same("schema version", version, "unmanaged") + [f"{n} exists" for n in x.resources if n == "Schema"]
    faults = same("schema version", version, "${Schema.Version}")
    (name,) = x.of_type("AWS::Scheduler::Schedule")
    for later, earlier in [
        ("Schema", "Migrate"), ("Schema", "MigrateEventInvokeConfig"), ("Schema", "MigrateRole"), ("Schema", "MigrateLogs"),
        ("Dispatch", "Schema"), (name, "Schema"), (name, "Dispatch"),
    ]:
        if later not in x.resources or earlier not in x.needs(later):
            faults.append(f"{later} does not wait for {earlier}")
    return faults


def schema(x):
    """The custom resource asks for the newest migration and waits a little longer than the function may take."""
    if "Schema" not in x.resources:
        return []
    p = x.properties("Schema")
    faults = same("schema's version", p["Version"], str(newest_migration()))
    faults += same("schema's function", p["ServiceToken"], "${Migrate.Arn}")
    return faults + same("schema's wait", int(p.get("ServiceTimeout", 3600)), int(x.properties("Migrate")["Timeout"]) + 30)


def functions(x):
    """Both functions: platform, logs, network, key, asynchronous calls."""
    faults = same("functions", sorted(x.of_type("AWS::Lambda::Function")), sorted(FUNCTIONS))
    for name in FUNCTIONS:
        p = x.properties(name)
        for key, want in {"Runtime": "provided.al2023", "Architectures": ["arm64"], "Handler": "bootstrap"}.items():
            faults += same(f"{name}'s {key}", p[key], want)
        logging = {"LogFormat": "JSON", "ApplicationLogLevel": x.parameters["LogLevel"], "SystemLogLevel": "INFO"}
        faults += same(f"{name}'s logging", p["LoggingConfig"], logging | {"LogGroup": "${" + name + "Logs}"})
        faults += same(f"{name}'s role", p["Role"], "${" + name + "Role.Arn}")
        faults += same(f"{name}'s key", p.get("KmsKeyArn", ""), x.parameters["KmsKeyArn"])
        faults += same(f"{name}'s tracing", p["TracingConfig"]["Mode"], "Active" if x.parameters["Tracing"] == "true" else "PassThrough")
        network = p.get("VpcConfig", {})
        faults += same(f"{name}'s subnets", ",".join(network.get("SubnetIds", [])), x.parameters["SubnetIds"])
        faults += same(f"{name}'s security groups", ",".join(network.get("SecurityGroupIds", [])), x.parameters["SecurityGroupIds"])
        calls = x.properties(f"{name}EventInvokeConfig")
        faults += same(f"{name}'s retries", (calls["MaximumRetryAttempts"], calls["MaximumEventAgeInSeconds"]), (0, 60))
    failed = x.properties("DispatchEventInvokeConfig").get("DestinationConfig")
    faults += same("failed passes", failed, {"OnFailure": {"Destination": "${DeadLetters.Arn}"}})
    p = x.properties("Dispatch")
    faults += same("reserved concurrency", str(p.get("ReservedConcurrentExecutions", "")), x.parameters["ReservedConcurrency"])
    faults += same("dispatch's timeout", str(p["Timeout"]), x.parameters["DispatchTimeout"])
    return faults + same("dispatch's memory", str(p["MemorySize"]), x.parameters["DispatchMemory"])


def storage(x):
    """Logs and dead letters: kept as long as said, encrypted."""
    faults = []
    for name in FUNCTIONS:
        p = x.properties(f"{name}Logs")
        faults += same(f"{name}'s log group", p["LogGroupName"], f"/aws/lambda/{STACK}-{name.lower()}")
        faults += same(f"{name}'s retention", str(p.get("RetentionInDays")), x.parameters["LogRetentionDays"])
        faults += same(f"key of {name}'s logs", p.get("KmsKeyId", ""), x.parameters["KmsKeyArn"])
    queue = x.properties("DeadLetters")
    faults += same("days of dead letters", queue.get("MessageRetentionPeriod"), 14 * 24 * 3600)
    key = x.parameters["KmsKeyArn"]
    got = (queue.get("KmsMasterKeyId", ""), queue.get("SqsManagedSseEnabled", False))
    return faults + same("encryption of dead letters", got, (key, key == ""))


def names(x):
    """Nothing has a name that a second stack in the account would have too."""
    return [
        f"{name}: {key} is fixed: {value}"
        for name, r in x.resources.items()
        for key, value in r["Properties"].items()
        if key in FIXED_NAMES and not str(value).startswith("${")
    ]


def credentials(x):
    """Each function has exactly one source of credentials, and only variables that go with it."""
    faults = []
    for name in FUNCTIONS:
        v = x.variables(name)
        iam = v["OUTBOX_DB_IAM_AUTH"] == "true"
        sources = [bool(v["DATABASE_URL"]), bool(v["DATABASE_SECRET_ARN"]), iam]
        faults += same(f"{name}'s sources of credentials", sources.count(True), 1)
        faults += same(f"{name} has a user", bool(v["OUTBOX_DB_USER"]), iam)
        if v["DATABASE_URL"] and (v["OUTBOX_DB_HOST"] or v["OUTBOX_DB_PORT"] or v["OUTBOX_DB_NAME"]):
            faults.append(f"{name}: the URL is contradicted by a host, port or name")
        if iam and not v["OUTBOX_DB_HOST"]:
            faults.append(f"{name}: IAM without a host")
        if iam and v["OUTBOX_DB_SSLMODE"] == "disable":
            faults.append(f"{name}: a token in the clear")
    return faults
