//go:build !linux

package postgres

import "os/exec"

// dieWithParent needs Linux; elsewhere a killed parent leaves its server behind.
func dieWithParent(*exec.Cmd) {}
