package contract

import "slices"

// FailedArgs are the arguments of outbox_mark_failed after the id and the token; nil is null.
type FailedArgs struct {
	Error, Outcome                           *string
	BaseDelay, MaxDelay, MaxAttempts, Snooze *int64
}

// MarkProcessed is outbox_mark_processed; a nil detail is SQL null.
func (m *Model) MarkProcessed(now Clock, id, token *string, detail *Document) bool {
	row := m.held("processed: ", now, id, token)
	if row == nil {
		return false
	}
	row.Status = "processed"
	row.ProcessedAt = &now.Now
	row.Error = nil
	m.hitIf(detail == nil, "processed: detail null")
	if detail != nil {
		row.Metadata = m.merge(row.Metadata, *detail)
	}
	return true
}

// merge lays a detail over the metadata, one level deep; the rail's own keys are out of its reach.
func (m *Model) merge(metadata, detail Document) Document {
	object := detail.object()
	if object == nil {
		m.hit("processed: detail no object")
		return metadata.withRaw("detail", detail)
	}
	m.hitIf(len(object) == 0, "processed: detail empty")
	for _, key := range slices.Sorted(keys(object)) {
		if slices.Contains(reservedKeys(), key) {
			_, there := metadata.object()[key]
			m.hitIf(there, "processed: detail cannot overwrite a key of the rail")
			m.hitIf(!there, "processed: detail cannot set a key of the rail")
			continue
		}
		_, there := metadata.object()[key]
		m.hitIf(there, "processed: the later key wins")
		m.hitIf(!there, "processed: detail adds a key")
		metadata = metadata.withRaw(key, object[key])
	}
	return metadata
}

func reservedKeys() []string {
	return []string{
		"claimToken", "lastClaimedAt", "snoozeCount", "lastSnoozedAt",
		"discardReason", "discardedAt", "finalAttempts", "traceparent",
	}
}

// MarkFailed is outbox_mark_failed.
func (m *Model) MarkFailed(now Clock, id, token *string, args FailedArgs, seen Observed) (string, *Fault) {
	if args.Outcome == nil || !slices.Contains([]string{"retry", "discard", "snooze"}, *args.Outcome) {
		m.hitIf(args.Outcome == nil, "failed 1: outcome null")
		m.hitIf(args.Outcome != nil, "failed 1: outcome unknown")
		m.hitIf(m.find(id) == nil, "failed 1: checked before the row is looked for")
		return "", &Fault{invalidCode, "outbox_mark_failed_invalid_outcome"}
	}
	base := m.clamp("failed 2: base", args.BaseDelay, 60, 5, 3600)
	longest := m.maxDelay(args.MaxDelay, base)
	ceiling := m.clamp("failed 2: max attempts", args.MaxAttempts, 8, 1, 20)
	snooze := m.clamp("failed 2: snooze", args.Snooze, 300, 60, 3600)

	row := m.held("failed 3: ", now, id, token)
	if row == nil {
		return "missed", nil
	}
	row.Error = cut(args.Error)
	m.hitIf(args.Error == nil, "failed: error null")
	m.hitIf(args.Error != nil && *row.Error != *args.Error, "failed: error cut")
	switch {
	case *args.Outcome == "discard":
		m.hit("failed 4: discard")
		return discard(now, row, "permanent_error"), nil
	case *args.Outcome == "snooze":
		m.snooze(now, row, snooze, seen)
		m.hitIf(row.Attempts+1 >= ceiling, "failed 5: snooze past the ceiling")
		return "snoozed", nil
	case row.Attempts >= ceiling:
		m.hit("failed 4: spent retry")
		return discard(now, row, "max_attempts"), nil
	}
	m.hit("failed 6: retry")
	delay := m.backoff(row.Attempts, base, longest) * second
	row.Status = "failed"
	row.AvailableAt = seen.due(row.ID, now.Now+delay/2, now.Now+delay)
	return "failed", nil
}

func discard(now Clock, row *Row, reason string) string {
	row.Status = "discarded"
	row.Metadata = row.Metadata.with(
		"discardReason", reason, "discardedAt", now.Text, "finalAttempts", number(row.Attempts))
	return "discarded"
}

func (m *Model) snooze(now Clock, row *Row, seconds int64, seen Observed) {
	m.hit("failed 5: snooze")
	m.hitIf(row.Attempts == 0, "failed 5: attempts never below 0")
	row.Status = "failed"
	row.Attempts = max(row.Attempts-1, 0)
	row.AvailableAt = now.Now + seconds*second
	kind, lawful := nextCounts(row.Metadata.object()["snoozeCount"])
	m.hit("failed 5: snoozeCount " + kind)
	row.Metadata = row.Metadata.with("snoozeCount", seen.count(row.ID, lawful), "lastSnoozedAt", now.Text)
}

// maxDelay is the longest wait before a retry: never under the base, never over a day.
func (m *Model) maxDelay(value *int64, base int64) int64 {
	longest := int64(3600)
	m.hitIf(value == nil, "failed 2: max delay null")
	if value != nil {
		longest = *value
		m.hitIf(longest < base, "failed 2: max delay under the base")
		m.hitIf(longest > 86400, "failed 2: max delay above a day")
	}
	return min(max(base, longest), 86400)
}

// backoff doubles the base for each attempt after the first, in seconds.
func (m *Model) backoff(attempts, base, longest int64) int64 {
	exponent := min(max(attempts-1, 0), 16)
	m.hitIf(attempts == 0, "failed 6: exponent never below 0")
	m.hitIf(attempts > 17, "failed 6: exponent never above 16")
	delay := base
	for range exponent {
		delay *= 2
	}
	m.hitIf(delay > longest, "failed 6: capped")
	m.hitIf(delay <= longest && exponent > 0, "failed 6: doubled")
	return min(longest, delay)
}

// Release is outbox_release_unprocessed; it answers the number of rows changed.
func (m *Model) Release(now Clock, ids, tokens List, delay *int64) (int64, *Fault) {
	if ids.Null || tokens.Null || len(ids.Items) != len(tokens.Items) {
		m.hitIf(ids.Null, "release 1: ids null")
		m.hitIf(tokens.Null, "release 1: tokens null")
		m.hitIf(!ids.Null && !tokens.Null, "release 1: counts differ")
		return 0, &Fault{invalidCode, "outbox_release_invalid_input"}
	}
	wait := m.clamp("release 2: delay", delay, 0, 0, 3600)
	m.hitIf(len(ids.Items) == 0, "release 3: empty")
	m.hitIf(ids.Nested || tokens.Nested, "release 3: nested")
	var changed int64
	done := map[string]bool{}
	for i := range ids.Items {
		if ids.Items[i] != nil && tokens.Items[i] != nil && done[*ids.Items[i]+*tokens.Items[i]] {
			m.hit("release 3: repeated pair")
		}
		row := m.held("release 3: ", now, ids.Items[i], tokens.Items[i])
		if row == nil {
			continue
		}
		m.hitIf(row.Attempts == 0, "release 3: attempts never below 0")
		row.Status = "pending"
		row.Attempts = max(row.Attempts-1, 0)
		row.AvailableAt = now.Now + wait*second
		done[*ids.Items[i]+*tokens.Items[i]] = true
		changed++
	}
	m.hitIf(changed > 1, "release 3: several rows")
	return changed, nil
}

// held finds the row that is processing under the token; null matches nothing.
func (m *Model) held(clause string, now Clock, id, token *string) *Row {
	row := m.find(id)
	m.hitIf(id == nil, clause+"id null")
	m.hitIf(id != nil && row == nil, clause+"id unknown")
	if row == nil {
		return nil
	}
	own := row.Metadata.text("claimToken")
	processing := row.Status == "processing"
	m.hitIf(processing && token == nil && own != nil, clause+"token null")
	m.hitIf(processing && token == nil && own == nil, clause+"token null, row without one")
	m.hitIf(processing && token != nil && own == nil, clause+"row without token")
	if token == nil || own == nil {
		return nil
	}
	m.hitIf(processing && *token != *own && m.Issued[*token], clause+"token of another claim")
	m.hitIf(processing && *token != *own && !m.Issued[*token], clause+"token never issued")
	m.hitIf(*token == *own && !processing, clause+"right token, already "+row.Status)
	if *token != *own || !processing {
		return nil
	}
	m.hit(clause + "right token")
	m.hitIf(row.AvailableAt <= now.Now, clause+"lease over, token still works")
	return row
}

func (m *Model) find(id *string) *Row {
	for _, row := range m.Rows {
		if id != nil && row.ID == *id {
			return row
		}
	}
	return nil
}
