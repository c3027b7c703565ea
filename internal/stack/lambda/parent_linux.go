package lambda

import (
	"os/exec"
	"syscall"
)

// dieWithParent ends the emulator when we die. The function dies with its emulator's runtime API.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM }
