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
	cpus              int
	cpu, memory       string
	platform, load    string // averages over 1, 5 and 15 minutes, before the run
	goVersion         string
	postgreSQL        string
	sharedBuffers     string
	fsync             string
	synchronousCommit string
}

const machineSQL = `
select current_setting('server_version'), current_setting('shared_buffers'), current_setting('fsync'),
       current_setting('synchronous_commit')`

// describeMachine looks at this machine, which is taken to be the server's too.
func describeMachine(ctx context.Context, ws *workspace) machine {
	m := machine{
		cpus: runtime.NumCPU(), cpu: field("/proc/cpuinfo", "model name"), memory: field("/proc/meminfo", "MemTotal"),
		platform: runtime.GOOS + "/" + runtime.GOARCH, goVersion: runtime.Version(),
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.load = strings.Join(strings.Fields(string(load))[:3], " ")
	}
	_ = ws.server.QueryRow(ctx, machineSQL).Scan(&m.postgreSQL, &m.sharedBuffers, &m.fsync, &m.synchronousCommit)
	return m
}

func (m machine) hardware() string {
	return fmt.Sprintf("CPUs (%s), memory %s, %s, load %s, %s", m.cpu, m.memory, m.platform, m.load, m.goVersion)
}

func (m machine) server() string {
	return fmt.Sprintf("PostgreSQL %s, shared_buffers %s, fsync %s, synchronous_commit %s",
		m.postgreSQL, m.sharedBuffers, m.fsync, m.synchronousCommit)
}

func (m machine) line() string {
	return fmt.Sprintf("%d %s; %s on the same machine; payloads of 300 bytes.", m.cpus, m.hardware(), m.server())
}

func (m machine) String() string {
	return fmt.Sprintf("machine: %d %s\nserver: %s", m.cpus, m.hardware(), m.server())
}

// figure is the machine's line among the figures.
func (m machine) figure() figure {
	return figure{Name: "machine", Value: float64(m.cpus), Unit: m.hardware() + "; " + m.server()}
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
