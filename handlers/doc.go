// Package handlers holds the destinations of the rail: each handler delivers one event and says, by the error it
// returns, what becomes of it. [HTTP] posts webhooks, signed as Standard Webhooks 1.0.0 says; [SNS] publishes to a
// topic; [SES] sends mails.
//
// What a destination answers, or fails to, is turned into an outcome by one table for webhooks, which docs/routes.md
// prints, and one for AWS, which docs/faults.md prints. Errors are short and stable, and hold neither URL, secrets,
// addresses, the payload nor anything the destination sent but its error code, unless [HTTPConfig].ResponseSnippet asks for it.
//
// Maturity: experimental. The API may still change between minor versions.
package handlers
