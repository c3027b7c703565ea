// Package handlers holds the destinations of the rail: each handler delivers one event and says, by the error it
// returns, what becomes of it. For now there is one, [HTTP]: a webhook, signed as Standard Webhooks 1.0.0 says.
//
// What a destination answers, or fails to, is turned into an outcome by one table; docs/routes.md prints it. Errors
// are short and stable, and hold neither the URL, the secrets, the payload nor anything the destination sent.
//
// Maturity: experimental. The API may still change between minor versions.
package handlers
