package postgres

// State says how a database stands to a set of migration files.
type State string

// States of a database.
const (
	StateCurrent State = "current" // every file is applied, nothing else is
	StatePending State = "pending" // the newest files are still to be applied
	StateAhead   State = "ahead"   // the database has migrations newer than the newest file
	StateDrift   State = "drift"   // history and files contradict each other
)

// Report says what a Migrator found and did. Its lists are never nil after a call that returned no error.
type Report struct {
	VersionBefore int                `json:"versionBefore"` // 0 in a database without migrations
	VersionAfter  int                `json:"versionAfter"`
	State         State              `json:"state"` // at the end of the call
	Applied       []AppliedMigration `json:"applied"`
	Pending       []PendingMigration `json:"pending"`
	Faults        []string           `json:"faults,omitempty"` // why the state is drift
}

// AppliedMigration is a file that this call applied.
type AppliedMigration struct {
	Version    int    `json:"version"`
	Name       string `json:"name"` // the file's name
	DurationMS int64  `json:"durationMs"`
}

// PendingMigration is a file that is still to be applied.
type PendingMigration struct {
	Version int    `json:"version"`
	Name    string `json:"name"` // the file's name
}
