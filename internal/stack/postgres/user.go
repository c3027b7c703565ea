package postgres

import (
	"fmt"
	"os"
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

// environment returns what a process of the user sees: our own variables and extra, at home in a folder it can enter.
func (u *user) environment(extra []string, home string) []string {
	all := append(os.Environ(), extra...) //nolint:forbidigo // handed on
	if u == nil {
		return all
	}
	return append(all, "HOME="+home, "XDG_CACHE_HOME=", "USER="+u.name)
}

// credential is what makes a process the user's.
func (u *user) credential() *syscall.Credential {
	if u == nil {
		return nil
	}
	return &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.gid)} //nolint:gosec // ids that the system gave us
}
