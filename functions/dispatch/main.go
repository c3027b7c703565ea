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

	"github.com/openlup/outbox-dispatch/internal/awsenv"
)

// startPercent is the garbage collector's percentage up to the first claimed batch. At the usual one the first collection
// comes just before that, for 4 MB of what mostly stays; at this one it would take 16 MB.
const startPercent = 400

func main() {
	percent := debug.SetGCPercent(startPercent)
	logger := lambdacontext.NewLogger()
	slog.SetDefault(logger) // the lambda package logs through the default
	app := newApp(context.Background(), os.Getenv, awsenv.Load, logger)
	app.started = sync.OnceFunc(func() { debug.SetGCPercent(percent) })
	lambda.StartWithOptions(app)
}
