package postgres_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/openlup/outbox-dispatch/internal/stack/postgres"
)

func TestMain(m *testing.M) {
	postgres.Helper()
	os.Exit(m.Run())
}

func TestServerAnswersAndLeavesNothing(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	server, err := postgres.Start(t.Context(), postgres.Config{Log: &log})
	if err != nil {
		t.Fatalf("start: %v\n%s", err, log.String())
	}
	conn, err := pgx.Connect(t.Context(), server.URL)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	var folder string
	if err := conn.QueryRow(t.Context(), "show data_directory").Scan(&folder); err != nil {
		t.Fatalf("query: %v", err)
	}
	_ = conn.Close(context.WithoutCancel(t.Context()))
	if err := server.Stop(); err != nil {
		t.Fatalf("stop: %v", err)
	}
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("data folder %s is still there (%v), want it removed", folder, err)
	}
	if _, err := pgx.Connect(t.Context(), server.URL); err == nil {
		t.Error("the server still answers after Stop")
	}
	if err := server.Stop(); err != nil {
		t.Errorf("second stop: %v", err)
	}
}
