"""Runs other programs, offline: no telemetry, no account."""

import os
import subprocess
import sys
import tempfile

CFN_LINT = [sys.executable, "-c", "import sys; from cfnlint.runner import main; sys.exit(main())"]
SAM = [sys.executable, "-m", "samcli"]


def run(command, folder):
    """Runs to the end and returns (exit code, everything it printed)."""
    with tempfile.TemporaryDirectory() as home:
        env = os.environ | {
            "AWS_ACCESS_KEY_ID": "none",
            "AWS_SECRET_ACCESS_KEY": "none",
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "SAM_CLI_TELEMETRY": "0",
            "__SAM_CLI_APP_DIR": home,
        }
        done = subprocess.run(command, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout
