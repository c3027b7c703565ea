package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// machine says what the figures were measured on. What can't be found out is empty.
type machine struct {
	CPUs              int    `json:"cpus"`
	CPU               string `json:"cpu,omitempty"`
	Memory            string `json:"memory,omitempty"`
	Platform          string `json:"platform"`
	Load              string `json:"load,omitempty"` // averages over 1, 5 and 15 minutes, before the run
	Go                string `json:"go"`
	PostgreSQL        string `json:"postgresql"`
	SharedBuffers     string `json:"shared_buffers"`
	Fsync             string `json:"fsync"`
	SynchronousCommit string `json:"synchronous_commit"`
}

const machineSQL = `
select current_setting('server_version'), current_setting('shared_buffers'), current_setting('fsync'),
       current_setting('synchronous_commit')`

// describeMachine looks at this machine, which is taken to be the server's too.
func describeMachine(ctx context.Context, ws *workspace) machine {
	m := machine{
		CPUs: runtime.NumCPU(), CPU: field("/proc/cpuinfo", "model name"), Memory: field("/proc/meminfo", "MemTotal"),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(load))[:3], " ")
	}
	_ = ws.server.QueryRow(ctx, machineSQL).Scan(&m.PostgreSQL, &m.SharedBuffers, &m.Fsync, &m.SynchronousCommit)
	return m
}

func (m machine) String() string {
	return fmt.Sprintf("machine: %d CPUs (%s), memory %s, %s, load %s, %s\npostgresql: %s, shared_buffers %s, fsync %s, synchronous_commit %s",
		m.CPUs, m.CPU, m.Memory, m.Platform, m.Load, m.Go, m.PostgreSQL, m.SharedBuffers, m.Fsync, m.SynchronousCommit)
}

// field returns the value of the first "key : value" line of a file of the kernel's.
func field(path, key string) string {
	file, err := os.Open(path) //nolint:gosec // a constant of this file
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
