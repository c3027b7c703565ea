package outboxtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

var (
	_ outbox.Store = (*Memory)(nil)
	_ outbox.Stats = (*Memory)(nil)

	_ outbox.Circuits = (*Memory)(nil)
	_ outbox.Pruner   = (*Memory)(nil)
)

// Memory is an outbox in memory that behaves like PostgreSQL's: the same claims, leases, outcomes and clamps. It is
// for tests: every call walks all rows. The zero value is empty and ready; it must not be copied after its first use. It
// is safe for concurrent use.
type Memory struct {
	// Clock decides what is due, as the database's does; nil means time.Now. Set it before the first use.
	Clock func() time.Time

	mu       sync.Mutex
	advanced time.Duration
	rows     []*Row // in order of position
	last     int64  // the last position given
	dormant  []string
	circuits map[string]*memoryCircuit
}

// Insert adds rows in the order given, as one producer's transaction would, and returns their ids in that order. It
// panics on what PostgreSQL refuses: a blank aggregate type, type or key, an id or a pair of type and key that is
// taken, an unknown status, negative attempts, malformed JSON. Ids may be any text.
func (m *Memory) Insert(rows ...Row) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := make([]string, 0, len(rows))
	now := m.now()
	for _, row := range rows {
		row = row.WithDefaults(now).clone()
		m.last++
		row.Position = m.last
		m.mustBeValid(row)
		for _, other := range m.rows {
			if other.ID == row.ID || (other.Type == row.Type && other.IdempotencyKey == row.IdempotencyKey) {
				panic(fmt.Sprintf("outboxtest: insert: id %q, or type %q with key %q, is taken",
					row.ID, row.Type, row.IdempotencyKey))
			}
		}
		m.rows = append(m.rows, &row)
		ids = append(ids, row.ID)
	}
	return ids
}

// Row returns a copy of the row with that id; it panics when there is none.
func (m *Memory) Row(id string) Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mustFind(id).clone()
}

// Exists tells whether there is a row with that id: [Memory.Prune] deletes some.
func (m *Memory) Exists(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.find(id) != nil
}

// Rows returns a copy of all rows in order of position.
func (m *Memory) Rows() []Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	rows := make([]Row, 0, len(m.rows))
	for _, row := range m.rows {
		rows = append(rows, row.clone())
	}
	return rows
}

// Update lets change alter the row with that id, as an operator's UPDATE would: redrive it, discard it, end its
// lease. The id and the position stay. It panics when there is no such row, or when the row that change leaves
// breaks a rule of [Memory.Insert]. change must not use m.
func (m *Memory) Update(id string, change func(row *Row)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	row := m.mustFind(id)
	changed := row.clone()
	change(&changed)
	changed.ID, changed.Position = row.ID, row.Position
	m.mustBeValid(changed)
	*row = changed.clone()
}

// Advance moves the store's clock ahead of Clock by d more, so that back-offs, snoozes and leases end.
func (m *Memory) Advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advanced += d
}

// ExpireLeases ends every lease now, as if the processes that hold them had died long ago, and returns how many.
// Their tokens still settle until the row is claimed again.
func (m *Memory) ExpireLeases() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, row := range m.rows {
		if row.Status == StatusProcessing {
			row.AvailableAt = m.now()
			n++
		}
	}
	return n
}

// DeclareDormant declares that nobody consumes these types, on purpose: their rows block no caller that does not
// claim or hold them.
func (m *Memory) DeclareDormant(eventTypes ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dormant = append(m.dormant, eventTypes...)
}

// now has PostgreSQL's resolution.
func (m *Memory) now() time.Time {
	clock := m.Clock
	if clock == nil {
		clock = time.Now
	}
	return clock().Add(m.advanced).UTC().Truncate(time.Microsecond)
}

func (m *Memory) find(id string) *Row {
	i := slices.IndexFunc(m.rows, func(r *Row) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return m.rows[i]
}

func (m *Memory) mustFind(id string) *Row {
	row := m.find(id)
	if row == nil {
		panic(fmt.Sprintf("outboxtest: no row %q", id))
	}
	return row
}

func (m *Memory) mustBeValid(row Row) {
	blank := func(text string) bool { return strings.Trim(text, " ") == "" }
	switch {
	case blank(row.AggregateType), blank(row.Type), blank(row.IdempotencyKey):
		panic("outboxtest: aggregate type, type or idempotency key is blank")
	case !row.unfinished() && row.Status != StatusProcessed && row.Status != StatusDiscarded:
		panic(fmt.Sprintf("outboxtest: unknown status %q", row.Status))
	case row.Attempts < 0:
		panic(fmt.Sprintf("outboxtest: %d attempts, takes 0 or more", row.Attempts))
	case !json.Valid(row.Payload), !json.Valid(row.Metadata):
		panic("outboxtest: payload or metadata is not JSON")
	}
}
