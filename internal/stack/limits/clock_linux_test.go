package limits_test

import (
	"testing"
	"time"
)

// One clock decides when things are due: the database's. So it does not matter how far it is from the function's.
func TestTheDatabasesClockMayBeOff(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{
		"ten minutes ahead": 10 * time.Minute, "ten minutes behind": -10 * time.Minute, "a year ahead": 365 * 24 * time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := server(t, ahead)
			pool := connect(t, url, nil)
			migrate(t, pool)
			off := time.Until(scalar[time.Time](t, pool, "select clock_timestamp()"))
			if difference := off - ahead; difference.Abs() > time.Minute {
				t.Fatalf("the server's clock is %v off, want %v: the case shows nothing", off, ahead)
			}
			playTimes(t, pool)
			playFunction(t, url)
		})
	}
}

// The hour in which a zone's clocks change is no special one. The server's clock stands two minutes before it, so that
// snoozes, leases and retention reach across.
func TestClocksThatChangeChangeNoDelay(t *testing.T) {
	t.Parallel()
	for name, moment := range map[string]time.Time{
		"forward": time.Date(2027, 3, 14, 6, 58, 0, 0, time.UTC), // 02:00 in New York becomes 03:00
		"back":    time.Date(2027, 11, 7, 5, 58, 0, 0, time.UTC), // 02:00 becomes 01:00
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := server(t, time.Until(moment).Truncate(time.Second))
			pool := connect(t, url, nil)
			execute(t, pool, "alter database postgres set timezone = 'America/New_York'")
			pool.Reset()
			migrate(t, pool)
			if got := scalar[string](t, pool, "show timezone"); got != "America/New_York" {
				t.Fatalf("the session's zone is %s", got)
			}
			if !scalar[bool](t, pool, "select now() < $1 and now() > $1 - interval '121 seconds'", moment.Add(2*time.Minute)) {
				t.Fatal("the server took two minutes to start: the case shows nothing")
			}
			playTimes(t, pool)
		})
	}
}
