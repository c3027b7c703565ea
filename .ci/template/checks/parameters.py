"""Sets of parameters that the template is expanded with."""

from checks.template import ACCOUNT, REGION


def secret(name, region=REGION):
    return f"arn:aws:secretsmanager:{region}:{ACCOUNT}:secret:{name}-AbC123"


def key(name):
    return f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{name}"


ROUTES = {"RoutesSecretArn": secret("shop/routes")}
BUNDLE = {"WebhookUrl": "https://crm.example.com/hooks", "WebhookSecret": "whsec_c2VjcmV0"}
MINIMAL = {"DatabaseSecretArn": secret("shop/db")} | ROUTES
VPC = {"SubnetIds": "subnet-0a1,subnet-0b2", "SecurityGroupIds": "sg-0c3"}
IAM = {
    "DatabaseIamAuth": "true",
    "DatabaseHost": "shop.proxy.example.com",
    "DatabaseName": "shop",
    "DatabaseUser": "outbox",
    "DatabaseResourceId": "prx-0abc",
} | ROUTES
URL = {"DatabaseUrl": "postgres://outbox:pw@db.example.com/shop"} | ROUTES
TOPICS = f"arn:aws:sns:{REGION}:{ACCOUNT}:orders,arn:aws:sns:us-east-1:{ACCOUNT}:payments.fifo"
SES = f"arn:aws:ses:{REGION}:{ACCOUNT}:identity/example.com,arn:aws:ses:{REGION}:{ACCOUNT}:configuration-set/orders"
QUEUES = f"arn:aws:sqs:{REGION}:{ACCOUNT}:discards,arn:aws:sqs:us-east-1:{ACCOUNT}:discards.fifo"
BUSES = f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/default,arn:aws:events:us-east-1:{ACCOUNT}:event-bus/shop/discards"

GOOD = {
    "minimal": MINIMAL,
    "a URL": URL,
    "a URL, migrations with a secret past the pooler": URL | {"MigrationSecretArn": secret("shop/owner"), "MigrationHost": "shop.example.com"},
    "the routes in the bundle": URL | BUNDLE | {"RoutesSecretArn": ""},
    "routes that use the webhook": MINIMAL | BUNDLE | {"RoutesSecretArn": "", "Routes": '{"version": 1}'},
    "VPC": MINIMAL | VPC,
    "IAM authentication": IAM,
    "IAM authentication, migrations as another role past the proxy": IAM
    | {"MigrationUser": "owner", "MigrationHost": "shop.example.com", "MigrationResourceId": "cluster-0DEF"},
    "IAM authentication, migrations with a secret": IAM | {"MigrationSecretArn": secret("shop/owner")},
    "a secret, migrations with a URL": MINIMAL
    | {"DatabaseHost": "pooler.example.com", "MigrationUrl": "postgres://owner:pw@db.example.com/shop"},
    "no migration": MINIMAL | {"MigrateOnDeploy": "false"},
    "disabled": MINIMAL | {"ScheduleState": "DISABLED", "ScheduleExpression": "cron(0/5 8-18 ? * MON-FRI *)"},
    "everything": MINIMAL
    | VPC
    | {
        "MigrationSecretArn": secret("shop/owner"),
        "MigrationTimeout": "900",
        "MigrationRun": "2",
        "Routes": '{"version": 1}',
        "RoutesSecretArn": secret("shop/routes", "us-east-1"),
        "SecretArns": f"{secret('shop/crm')},{secret('shop/erp', 'us-east-1')}",
        "SnsTopicArns": TOPICS,
        "SnsKmsKeyArns": key("topics"),
        "SesArns": SES,
        "DiscardQueueArns": QUEUES,
        "DiscardBusArns": BUSES,
        "KmsKeyArn": key("stack"),
        "SecretsKmsKeyArns": f"{key('secrets')},{key('routes')}",
        "PermissionsBoundaryArn": f"arn:aws:iam::{ACCOUNT}:policy/boundary",
        "ReservedConcurrency": "2",
        "DispatchTimeout": "300",
        "DispatchMemory": "512",
        "LogRetentionDays": "90",
        "Tracing": "true",
    },
}

# Each source of credentials with each way to migrate.
DATABASES = {"a secret": MINIMAL, "IAM": IAM, "a URL": URL}
MIGRATIONS = {
    "the same": {},
    "a secret of its own": {"MigrationSecretArn": secret("shop/owner")},
    "a URL of its own": {"MigrationUrl": "postgres://owner:pw@db.example.com/shop"},
}

# Parameters that go with some databases and ways to migrate only.
BESIDE = {
    "MigrationHost": "direct.example.com",
    "MigrationUser": "owner",
    "MigrationResourceId": "cluster-0DEF",
    "DatabaseSslMode": "disable",
}

# What CloudFormation must and must not take for a parameter, by its pattern.
PATTERNS = {
    "DatabaseSecretArn": (
        ["", secret("shop/db"), secret("rds!cluster-0a1b2c3d"), "arn:aws-cn:secretsmanager:cn-north-1:123456789012:secret:db-AbC123"],
        ["shop/db", secret("shop/db")[:-7], "arn:aws:ssm:eu-central-1:123456789012:parameter/db-AbC123", secret("*")],
    ),
    "SecretArns": (
        ["", secret("shop/crm"), f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:shop/endpoints/*"],
        ["*", "shop/crm", secret("shop/crm")[:-7], secret("shop/crm") + "#key", secret("*"), f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:*", f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:shop*"],
    ),
    "DatabaseResourceId": (["", "db-ABC123", "cluster-0DEF", "prx-0abc"], ["shop", "*", "arn:aws:rds:x", "db-*"]),
    "DatabaseUser": (["", "outbox", "app_1"], ["*", "a/b", "${x}"]),
    "DatabasePort": (["", "5432"], ["54321x", "-1", "543210", "0"]),
    "MigrationLockTimeout": (["5s", "500ms", "1m", "1m30s"], ["", "5", "five"]),
    "RetentionProcessed": (["30d", "12h", "15m", "10s", "0", "never"], ["", "30", "1d12h", "-1d", "1.5d", "forever"]),
    "RetentionDiscarded": (["90d", "0", "never"], ["", "90", "1w"]),
    "SnsTopicArns": ([*TOPICS.split(","), ""], ["*", "orders", "arn:aws:sns:eu-central-1:123456789012:*"]),
    "SnsKmsKeyArns": (["", key("0a1b-2c")], ["*", "alias/aws/sns", f"arn:aws:kms:{REGION}:{ACCOUNT}:key/*"]),
    "DiscardQueueArns": (["", *QUEUES.split(",")], ["*", "discards", f"arn:aws:sqs:{REGION}:{ACCOUNT}:*", f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/discards"]),
    "DiscardBusArns": (["", *BUSES.split(",")], ["*", "default", f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/*", f"arn:aws:events:{REGION}:{ACCOUNT}:rule/a"]),
    "SesArns": (
        ["", *SES.split(","), f"arn:aws:ses:{REGION}:{ACCOUNT}:identity/orders+x@example.com", f"arn:aws:ses:{REGION}:{ACCOUNT}:template/Hi_1", f"arn:aws:ses:{REGION}:{ACCOUNT}:template/*"],
        ["*", "example.com", f"arn:aws:ses:{REGION}:{ACCOUNT}:identity/*", f"arn:aws:ses:{REGION}:{ACCOUNT}:template/a*", f"arn:aws:ses:{REGION}:{ACCOUNT}:*"],
    ),
    "ScheduleExpression": (
        ["rate(1 minute)", "rate(5 minutes)", "rate(1 hour)", "cron(0/5 8-18 ? * MON-FRI *)"],
        ["rate(1 minutes)", "rate(5 minute)", "rate(0 minutes)", "cron(* * * * *)", "at(2026-11-30T03:00:00)", ""],
    ),
    "ReservedConcurrency": (["", "0", "2"], ["-1", "two"]),
    "SubnetIds": (["", "subnet-0a1", "subnet-0a1,subnet-0b2"], ["0a1", "sg-0a1", "subnet-0a1,", "subnet-0a1, subnet-0b2", ",subnet-0a1"]),
    "SecurityGroupIds": (["", "sg-0a1", "sg-0a1,sg-0b2"], ["default", "subnet-0a1", "sg-0a1,"]),
    "MigrationRun": (["", "1", "20261130"], ["a", "-1", "1.5", "2026-11-30"]),
    "KmsKeyArn": (["", key("0a1b-2c")], ["alias/x", f"arn:aws:kms:{REGION}:{ACCOUNT}:alias/x", "*"]),
    "PermissionsBoundaryArn": (["", f"arn:aws:iam::{ACCOUNT}:policy/team/b", "arn:aws:iam::aws:policy/PowerUserAccess"], ["boundary"]),
}
SAME_PATTERN = {
    "MigrationSecretArn": "DatabaseSecretArn",
    "RoutesSecretArn": "DatabaseSecretArn",
    "MigrationUser": "DatabaseUser",
    "MigrationResourceId": "DatabaseResourceId",
    "SecretsKmsKeyArns": "SnsKmsKeyArns",
}

# Parameters that section Rules refuses, with a word of the reason.
REFUSED = {
    "no database": (ROUTES, "exactly one"),
    "two databases": (MINIMAL | URL, "exactly one"),
    "a secret and IAM": (MINIMAL | IAM, "exactly one"),
    "IAM without a host": (IAM | {"DatabaseHost": ""}, "DatabaseHost"),
    "IAM without a user": (IAM | {"DatabaseUser": ""}, "DatabaseUser"),
    "IAM without a resource id": (IAM | {"DatabaseResourceId": ""}, "DatabaseResourceId"),
    "IAM without encryption": (IAM | {"DatabaseSslMode": "disable"}, "but disable"),
    "a user without IAM": (MINIMAL | {"DatabaseUser": "outbox"}, "belong to DatabaseIamAuth"),
    "a resource id without IAM": (MINIMAL | {"MigrationResourceId": "db-0abc"}, "belong to DatabaseIamAuth"),
    "a URL and a host": (URL | {"DatabaseHost": "db"}, "leave DatabaseHost"),
    "a URL and a host for migrations": (URL | {"MigrationHost": "db"}, "leave MigrationHost empty and give a MigrationUrl"),
    "a URL and a host for migrations twice": (
        MINIMAL | {"MigrationUrl": "postgres://db/shop", "MigrationHost": "db"}, "Beside MigrationUrl leave MigrationHost"),
    "two for migrations": (
        MINIMAL | {"MigrationSecretArn": secret("a"), "MigrationUrl": "postgres://db/shop"},
        "at most one",
    ),
    "IAM for migrations with a secret": (IAM | {"MigrationSecretArn": secret("a"), "MigrationUser": "owner"}, "leave MigrationUser"),
    "IAM past a proxy without its id": (IAM | {"MigrationHost": "db"}, "both of MigrationHost and MigrationResourceId"),
    "IAM with an id of nothing": (IAM | {"MigrationResourceId": "db-0abc"}, "both of MigrationHost and MigrationResourceId"),
    "no routes": (MINIMAL | {"RoutesSecretArn": ""}, "Set Routes or RoutesSecretArn"),
    "routes in the bundle without a secret": (MINIMAL | BUNDLE | {"RoutesSecretArn": "", "WebhookSecret": ""}, "Set Routes or RoutesSecretArn"),
    "subnets without security groups": (MINIMAL | {"SubnetIds": "subnet-0a1"}, "both of SubnetIds"),
    "security groups without subnets": (MINIMAL | {"SecurityGroupIds": "sg-0a1"}, "both of SubnetIds"),
}
