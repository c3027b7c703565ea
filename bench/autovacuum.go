package main

import (
	"context"
	"strconv"
)

// autovacuums compares months under different settings of the table. It has no targets.
func (b *bench) autovacuums(ctx context.Context) error {
	t := table{columns: []string{"autovacuum", "MB", "packed MB", "ratio", "most dead rows"}}
	for _, settings := range []struct{ name, options string }{
		{"by default: 20 % of the rows", ""},
		{"5 %", "autovacuum_vacuum_scale_factor = 0.05"},
		{"1 %", "autovacuum_vacuum_scale_factor = 0.01"},
		{"10,000 rows, at full speed", "autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0"},
	} {
		change := "select"
		if settings.options != "" {
			change = "alter table outbox_events set (" + settings.options + ")"
		}
		m, err := b.playMonth(ctx, change)
		if err != nil {
			return err
		}
		var dead int64
		for _, d := range m.days {
			dead = max(dead, d.deadRows)
		}
		t.rows = append(t.rows, []string{
			settings.name, number(m.last().size()), number(m.packed.size()), number(m.last().size() / m.packed.size()), strconv.FormatInt(dead, 10),
		})
	}
	b.tables = append(b.tables, t)
	return nil
}
