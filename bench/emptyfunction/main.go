// Command emptyfunction is a Lambda function that does nothing: what a cold start costs at least.
package main

import (
	"context"

	"github.com/aws/aws-lambda-go/lambda"
)

func main() {
	lambda.Start(func(context.Context) (string, error) { return "ok", nil })
}
