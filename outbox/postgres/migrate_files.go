package postgres

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
)

// noTransaction is the first line of a file that runs outside of a transaction.
const noTransaction = "-- outbox: no transaction"

// migration is one file.
type migration struct {
	version  int
	name     string // the file's name
	sql      string // as it is in the file, so that error positions are the file's
	checksum string // sha256 in hexadecimal, the same for LF and CRLF line ends
	index    *concurrentIndex
}

// concurrentIndex is what a file without a transaction builds, in schema public. Nil means a file in a transaction.
type concurrentIndex struct {
	name, table string
	unique      bool
}

// Latest returns the newest version among the migrations in files, which is the number of them. It fails if a file
// is misnamed or a number is missing or used twice.
func Latest(files fs.FS) (int, error) {
	migrations, err := loadMigrations(files)
	if err != nil {
		return 0, err
	}
	return len(migrations), nil
}

// loadMigrations returns the files in order of their versions; the one at index i has version i+1. Every fault is
// reported.
func loadMigrations(files fs.FS) ([]migration, error) {
	if files == nil {
		return nil, errors.New("files: nil, takes a file system with migrations")
	}
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	if len(names) == 0 {
		return nil, errors.New("files: no migrations found, takes files named NNNN_name.sql")
	}
	var migrations []migration
	var faults []error
	for _, name := range names { // sorted, and so in order of their numbers once all have four digits
		file, err := loadMigration(files, name)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if want := len(migrations) + 1; file.version != want && len(faults) == 0 {
			faults = append(faults, fmt.Errorf("%s: number %d, takes %d: numbers have no gaps and no duplicates", name, file.version, want))
		}
		migrations = append(migrations, file)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return migrations, nil
}

func loadMigration(files fs.FS, name string) (migration, error) {
	digits, rest, _ := strings.Cut(strings.TrimSuffix(name, ".sql"), "_")
	version, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || len(digits) != 4 || rest == "" {
		return migration{}, fmt.Errorf("%s: takes a name like 0001_name.sql", name)
	}
	content, err := fs.ReadFile(files, name)
	if err != nil {
		return migration{}, fmt.Errorf("read migration: %w", err)
	}
	sum := sha256.Sum256(bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n")))
	file := migration{version: int(version), name: name, sql: string(content), checksum: hex.EncodeToString(sum[:])}
	first, rest, _ := strings.Cut(file.sql, "\n")
	if strings.TrimRight(first, " \r") == noTransaction {
		file.index, err = parseConcurrentIndex(rest)
	}
	if err != nil {
		return migration{}, fmt.Errorf("%s: %w", name, err)
	}
	return file, nil
}

// parseConcurrentIndex reads the names from the statement. That nothing follows the statement is PostgreSQL's to
// check: it is sent by the extended protocol, which takes one statement only.
//
// The schema is demanded because no search_path can be set without a transaction; "if not exists" is refused because
// it would take an invalid index for a built one.
func parseConcurrentIndex(sql string) (*concurrentIndex, error) {
	comments := regexp.MustCompile(`(?m)^\s*(--.*)?$`)
	statement := strings.TrimSpace(comments.ReplaceAllString(sql, ""))
	form := regexp.MustCompile(`(?i)^create\s+(unique\s+)?index\s+concurrently\s+([a-z_][a-z0-9_]*)\s+on\s+public\.([a-z_][a-z0-9_]*)[\s(]`)
	parts := form.FindStringSubmatch(statement)
	if parts == nil {
		return nil, fmt.Errorf("%q takes one statement of the form create [unique] index concurrently name on public.table …", noTransaction)
	}
	return &concurrentIndex{
		unique: parts[1] != "",
		name:   strings.ToLower(parts[2]),
		table:  strings.ToLower(parts[3]),
	}, nil
}
