package database

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

// url parses DATABASE_URL. Not one byte of it enters a fault: a URL that does not parse may be a password in any
// part, and pgx redacts its errors by best effort only.
func (r *reader) url(text string, c Config) *pgxpool.Config {
	const name = "DATABASE_URL"
	if !strings.HasPrefix(text, "postgres://") && !strings.HasPrefix(text, "postgresql://") {
		r.say(name, "not a URL, takes postgres://user:password@host:5432/dbname")
		return nil
	}
	said, err := urlSettings(text)
	if err != nil {
		r.say(name, "its query cannot be read, takes key=value pairs joined by &, percent-encoded")
		return nil
	}
	for _, key := range refusedSettings() {
		if said.Has(key[0]) {
			r.say(name, "says "+key[0]+", takes it by "+key[1])
		}
	}
	mode := c.sslMode
	if mode == "" && said.Has("sslmode") {
		mode = said.Get("sslmode")
		if !slices.Contains(sslModes(), mode) {
			r.say(name, "its sslmode is unknown or may fall back to plaintext, takes one of "+strings.Join(sslModes(), ", "))
			return nil
		}
	}
	root := c.rootCert
	if root == "" {
		root = said.Get("sslrootcert")
		r.checkRoots(name+" sslrootcert", root)
	}
	// A repeated setting counts as last said, so ours decide.
	separator := "?"
	if len(said) > 0 {
		separator = "&"
	}
	settings := url.Values{"sslmode": {cmp.Or(mode, defaultMode)}}
	if root != "" {
		settings.Set("sslrootcert", root)
	}
	parsed, err := pgxpool.ParseConfig(text + separator + settings.Encode())
	if err != nil {
		r.say(name, "cannot be parsed; check that user and password are percent-encoded, then host, port, connect_timeout and the other settings")
		return nil
	}
	tlsRules(&parsed.ConnConfig.Config, mode, root)
	return parsed
}

// refusedSettings are keys of a URL that have another place here, and that place.
func refusedSettings() [][2]string {
	return [][2]string{
		{"ssl", "sslmode"},
		{"default_query_exec_mode", "OUTBOX_DB_EXEC_MODE"},
		{"pool_max_conns", "OUTBOX_DB_MAX_CONNS"},
		{"pool_min_conns", "nothing: connections are opened when needed"},
		{"pool_min_idle_conns", "nothing: connections are opened when needed"},
	}
}

// urlSettings returns the query of a database URL. It finds the query where libpq and pgx do: behind the user and
// password, which may hold a question mark.
func urlSettings(text string) (url.Values, error) {
	_, rest, _ := strings.Cut(text, "://")
	if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
		rest = rest[i+1:]
	}
	_, query, _ := strings.Cut(rest, "?")
	return url.ParseQuery(query)
}
