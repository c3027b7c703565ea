package outbox

import "testing"

func TestOneEventCannotOpenACircuit(t *testing.T) {
	t.Parallel()
	var c circuits
	for _, id := range []string{"a", "a", "a", "a", "a", "b", "c", "d", "a", "b"} {
		if c.failed("crm", id, "refused") {
			t.Fatalf("opened by retries of %s, want five different events", id)
		}
	}
	if c.opened || c.isOpen("crm") {
		t.Error("a circuit is open after retries of four events")
	}
	if !c.failed("crm", "e", "refused") || !c.isOpen("crm") || c.isOpen("erp") {
		t.Error("the fifth event did not open its destination, and that alone")
	}
	if c.failed("crm", "f", "refused") {
		t.Error("an open circuit opened again")
	}
}
