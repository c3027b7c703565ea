package connections_test

import "testing"

// What is lost while the sandbox is frozen costs the next invocation nothing but time.
func TestFrozenConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*scene){
		"cut":                 func(s *scene) { s.way.cut() },
		"lost without a sign": func(s *scene) { s.way.strand() },
		"ended by the server": func(s *scene) { s.terminate() },
		"nothing happens":     func(*scene) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shared(t)
			s.Dispatch(s.f)
			if err := s.f.Freeze(); err != nil {
				t.Fatal(err)
			}
			lose(s)
			s.Insert(events, 100)
			if err := s.f.Thaw(); err != nil {
				t.Fatal(err)
			}
			s.Dispatch(s.f)
			s.Arrived(2 * events)
			if got := s.Hook.Repeated(); got != 0 {
				t.Errorf("%d deliveries were repeated, want none", got)
			}
		})
	}
}
