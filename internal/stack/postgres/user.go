package postgres

import (
	"fmt"
	"os"
	"os/exec"
	osuser "os/user"
	"strconv"
	"syscall"
)

// user is whom the server runs as; nil means ourselves.
type user struct {
	name     string
	uid, gid int
}

// unprivileged returns nil when we are not root, else a user to run the server as.
func unprivileged() (*user, error) {
	if os.Getuid() != 0 {
		return nil, nil //nolint:nilnil // nil is ourselves
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := osuser.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(found.Uid)
		gid, err2 := strconv.Atoi(found.Gid)
		if err1 == nil && err2 == nil && uid != 0 {
			return &user{name: name, uid: uid, gid: gid}, nil
		}
	}
	return nil, fmt.Errorf("postgresql refuses to run as root, and neither of the users postgres and nobody exists")
}

// own hands a file or folder to the user.
func (u *user) own(path string) error {
	if u == nil {
		return nil
	}
	return os.Chown(path, u.uid, u.gid)
}

// run makes cmd run as the user, in a folder that it can enter.
func (u *user) run(cmd *exec.Cmd, folder string) {
	cmd.Dir = folder
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is ours to handle
	if u == nil {
		return
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.gid)}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "HOME="+folder, "XDG_CACHE_HOME=", "USER="+u.name)
}

// interrupt asks for an immediate shutdown.
func interrupt(cmd *exec.Cmd) { _ = cmd.Process.Signal(syscall.SIGQUIT) }
