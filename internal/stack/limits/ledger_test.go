//go:build soak

package limits_test

import (
	"os"
	"strconv"
	"testing"
)

// number reads a size from the environment.
func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s: %q, takes a positive number", variable, text)
	}
	return n
}
