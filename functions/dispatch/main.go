// Command dispatch is the Lambda function that delivers pending events of the outbox.
package main

import (
	"context"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
)

func main() {
	lambda.StartWithOptions(newApp(context.Background(), os.Getenv, lambdacontext.NewLogger()))
}
