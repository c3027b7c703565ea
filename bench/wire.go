package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// wire hands a client's bytes on to PostgreSQL, without TLS, and notes when a statement is sent to be executed.
type wire struct {
	target   *pgx.ConnConfig
	needle   []byte
	listener net.Listener
	open     sync.WaitGroup
	cancel   context.CancelFunc

	lock  sync.Mutex
	at    time.Time
	conns []net.Conn
}

// watch listens for connections to the target that send a statement with the needle in it.
func watch(ctx context.Context, target *pgx.ConnConfig, needle string) (*wire, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("watch the wire: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &wire{target: target, needle: []byte(needle), listener: listener, cancel: cancel}
	w.open.Go(func() { w.accept(ctx) })
	return w, nil
}

// seen returns when the statement was sent first.
func (w *wire) seen() (time.Time, bool) {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.at, !w.at.IsZero()
}

// close ends all connections.
func (w *wire) close() error {
	w.cancel()
	err := w.listener.Close()
	w.lock.Lock()
	for _, conn := range w.conns {
		_ = conn.Close()
	}
	w.lock.Unlock()
	w.open.Wait()
	return err
}

func (w *wire) accept(ctx context.Context) {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := w.dial(ctx)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !w.keep(ctx, client, server) {
			return
		}
		w.open.Go(func() {
			_, _ = io.Copy(client, server)
			_ = client.Close()
		})
		w.open.Go(func() {
			_ = w.forward(server, client)
			_ = server.Close()
		})
	}
}

// keep notes connections to be closed; after the end it closes them itself.
func (w *wire) keep(ctx context.Context, conns ...net.Conn) bool {
	w.lock.Lock()
	defer w.lock.Unlock()
	if ctx.Err() != nil {
		for _, conn := range conns {
			_ = conn.Close()
		}
		return false
	}
	w.conns = append(w.conns, conns...)
	return true
}

func (w *wire) dial(ctx context.Context) (net.Conn, error) {
	var dialer net.Dialer
	port := strconv.Itoa(int(w.target.Port))
	if filepath.IsAbs(w.target.Host) {
		return dialer.DialContext(ctx, "unix", filepath.Join(w.target.Host, ".s.PGSQL."+port))
	}
	return dialer.DialContext(ctx, "tcp", net.JoinHostPort(w.target.Host, port))
}

// forward copies what the client sends. Its text comes first, to be prepared; what comes next is its execution, and
// that moment counts.
func (w *wire) forward(server io.Writer, client io.Reader) error {
	buffer := make([]byte, 64<<10)
	prepared := false
	for {
		n, err := client.Read(buffer)
		if n > 0 {
			if prepared {
				w.note()
			}
			prepared = prepared || bytes.Contains(buffer[:n], w.needle)
			if _, err := server.Write(buffer[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (w *wire) note() {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.at.IsZero() {
		w.at = time.Now()
	}
}
