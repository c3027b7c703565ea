// Command dispatch is the Lambda function that delivers pending events of the outbox.
package main

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
)

// startPercent is the garbage collector's percentage up to the first claimed batch: what a process sets up, mostly AWS's
// clients, would otherwise be collected just before that. At this one there may be 16 MB of it.
const startPercent = 400

func main() {
	percent := debug.SetGCPercent(startPercent)
	logger := lambdacontext.NewLogger()
	slog.SetDefault(logger) // the lambda package logs through the default
	app := newApp(context.Background(), os.Getenv, awsconfig.LoadDefaultConfig, logger)
	app.started = sync.OnceFunc(func() { debug.SetGCPercent(percent) })
	lambda.StartWithOptions(app)
}
