// Command migrate is the Lambda function that brings the outbox's tables and functions to the version that this
// binary ships.
//
// It is invoked by hand or by a deployment with {} or {"action":"up"}, {"action":"status"} or {"action":"verify"}, or
// by CloudFormation as the provider of a custom resource.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
)

func main() {
	logger := lambdacontext.NewLogger()
	slog.SetDefault(logger) // the lambda package logs through the default
	app := newApp(context.Background(), os.Getenv, logger)
	lambda.StartWithOptions(app.handle)
}
