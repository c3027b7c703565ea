// Command dispatch is the Lambda function that delivers pending events of the outbox.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
)

func main() {
	logger := lambdacontext.NewLogger()
	slog.SetDefault(logger) // the lambda package logs through the default
	lambda.StartWithOptions(newApp(context.Background(), os.Getenv, awsconfig.LoadDefaultConfig, logger))
}
