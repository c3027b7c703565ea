package postgres

import (
	"os/exec"
	"syscall"
)

// dieWithParent ends the server when we die, whatever we die of.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT }
