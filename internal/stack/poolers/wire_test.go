package poolers_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
)

// wire stands between a client and PostgreSQL, changes nothing, and notes what the client says.
type wire struct {
	upstream string
	listener net.Listener
	running  sync.WaitGroup

	mu         sync.Mutex
	open       []net.Conn
	parameters []map[string]string // of each startup message
	statements []string            // of Query and Parse messages
	kinds      []byte              // of all messages, each once
}

// listen starts a wire to the server of a URL; it ends with the test.
func listen(t *testing.T, database string) (w *wire, through string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	w = &wire{upstream: u.Host}
	if w.listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	u.Host = w.listener.Addr().String()
	query := u.Query()
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	w.running.Go(func() {
		for {
			client, err := w.listener.Accept()
			if err != nil {
				return
			}
			w.running.Go(func() { w.serve(t.Context(), client) })
		}
	})
	t.Cleanup(func() {
		_ = w.listener.Close()
		w.mu.Lock()
		for _, conn := range w.open {
			_ = conn.Close()
		}
		w.mu.Unlock()
		w.running.Wait()
	})
	return w, u.String()
}

func (w *wire) serve(ctx context.Context, client net.Conn) {
	server, err := new(net.Dialer).DialContext(ctx, "tcp", w.upstream)
	if err != nil {
		_ = client.Close()
		return
	}
	w.mu.Lock()
	w.open = append(w.open, client, server)
	w.mu.Unlock()
	copied, heard := io.Pipe()
	w.running.Go(func() { w.note(copied) })
	w.running.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	_, _ = io.Copy(server, io.TeeReader(client, heard))
	_ = heard.Close()
	_ = server.Close()
}

// note reads messages until the connection ends. A startup message has no kind; every other begins with it.
func (w *wire) note(from io.Reader) {
	defer func() { _, _ = io.Copy(io.Discard, from) }()
	body, err := message(from)
	if err != nil || len(body) < 4 {
		return
	}
	if binary.BigEndian.Uint32(body) != 196608 {
		return // a cancel request
	}
	w.mu.Lock()
	w.parameters = append(w.parameters, pairs(body[4:]))
	w.mu.Unlock()
	for kind := []byte{0}; ; {
		if _, err := io.ReadFull(from, kind); err != nil {
			return
		}
		if body, err = message(from); err != nil {
			return
		}
		w.mu.Lock()
		if !slices.Contains(w.kinds, kind[0]) {
			w.kinds = append(w.kinds, kind[0])
		}
		switch kind[0] {
		case 'Q':
			w.statements = append(w.statements, text(body))
		case 'P': // the statement's name, then its text
			w.statements = append(w.statements, text(body[bytes.IndexByte(body, 0)+1:]))
		}
		w.mu.Unlock()
	}
}

// message reads a length and as many bytes, its own four included.
func message(from io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:])-4)
	_, err := io.ReadFull(from, body)
	return body, err
}

func text(body []byte) string {
	before, _, _ := bytes.Cut(body, []byte{0})
	return string(before)
}

func pairs(body []byte) map[string]string {
	found := map[string]string{}
	for len(body) > 1 {
		name := text(body)
		body = body[len(name)+1:]
		found[name] = text(body)
		body = body[len(found[name])+1:]
	}
	return found
}
