package handlers_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// queued runs passes over mails until none is left, and expects each to be delivered once and none to be discarded.
func (f *fakeSES) queued(t *testing.T, rate *handlers.SESRate, handler outbox.Handler, payloads []string) (took time.Duration) {
	t.Helper()
	store := &outboxtest.Memory{}
	for i, payload := range payloads {
		store.Insert(outboxtest.Row{Type: "mail", AggregateID: fmt.Sprint("customer-", i), Payload: []byte(payload)})
	}
	worker, err := outbox.NewWorker(outbox.Config{Store: store, Registry: outbox.Registry{
		"mail": {Handler: handler, Destination: "mail", Limit: rate.Limit()},
	}})
	if err != nil {
		t.Fatal(err)
	}
	began, processed := time.Now(), 0
	for range 100 {
		result, err := worker.Run(t.Context(), outbox.Pass{SoftBudget: 53 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if result.Retried != 0 || result.Discarded != 0 || result.Snoozed != 0 {
			t.Errorf("a pass retried %d, discarded %d, snoozed %d, want none", result.Retried, result.Discarded, result.Snoozed)
		}
		if processed += result.Processed; processed == len(payloads) {
			break
		}
	}
	if processed != len(payloads) || len(f.mails) != len(payloads) {
		t.Errorf("%d events processed, %d mails, want %d of each", processed, len(f.mails), len(payloads))
	}
	return time.Since(began)
}

func TestTwoThousandMailsStayBelowTheAccountsRate(t *testing.T) {
	t.Parallel()
	simple := func(recipients int) string {
		return `{"to": ["` + strings.TrimSuffix(strings.Repeat(`ann@customer.example.org", "`, recipients), `, "`) + `], "subject": "s", "text": "t"}`
	}
	letter := func(recipients int) string {
		return strings.Replace(simple(recipients), `"subject": "s", "text": "t"`, `"template": "letter", "data": {"n": 1}`, 1)
	}
	for name, c := range map[string]struct {
		rate    float64
		latency time.Duration
		payload func(i int) string
		total   int // recipients
	}{
		"one recipient each":             {14, 40 * time.Millisecond, func(int) string { return simple(1) }, 2000},
		"one to three recipients":        {14, 40 * time.Millisecond, func(i int) string { return simple(1 + i%3) }, 3999},
		"templates that share calls":     {14, 40 * time.Millisecond, func(int) string { return letter(1) }, 2000},
		"templates with some recipients": {50, 40 * time.Millisecond, func(i int) string { return letter(1 + i%3) }, 3999},
		"simple mails and templates": {14, 40 * time.Millisecond, func(i int) string {
			return []func(int) string{simple, letter}[i/3%2](1)
		}, 2000},
		"a sandbox of one a second": {1, 40 * time.Millisecond, func(int) string { return simple(1) }, 2000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fake := &fakeSES{rate: c.rate, latency: c.latency}
				rate := handlers.NewSESRate(fake.client(), 0)
				payloads := make([]string, 2000)
				for i := range payloads {
					payloads[i] = c.payload(i)
				}
				took := fake.queued(t, rate, fake.handler(t, handlers.SESConfig{Rate: rate}), payloads)
				ideal := time.Duration(float64(c.total) / c.rate * float64(time.Second))
				t.Logf("%d of %d answers throttled, %d calls of SendBulkEmail, %v for what takes %v at best",
					fake.throttled, fake.answers, fake.calls["SendBulkEmail"], took.Round(time.Second), ideal.Round(time.Second))
				if fake.throttled*100 >= fake.answers {
					t.Errorf("%d of %d answers throttled, want fewer than 1 in 100", fake.throttled, fake.answers)
				}
				// Mails of several recipients leave some of a second unused.
				if took > ideal*130/100+10*time.Second {
					t.Errorf("took %v, want hardly more than %v", took, ideal)
				}
			})
		})
	}
}

func TestTheRateIsAskedForOnceAndAgainWhenItIsOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeSES{quota: 14, latency: time.Second}
		rate := handlers.NewSESRate(fake.client(), 0)
		if got := rate.Limit().PerSecond(); got != 1 {
			t.Errorf("a rate of %v before it is known, want 1", got)
		}
		handler, other := fake.handler(t, handlers.SESConfig{Rate: rate}), fake.handler(t, handlers.SESConfig{Rate: rate})
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				if _, err := []*handlers.SES{handler, other}[i%2].Handle(t.Context(), mailEvent("")); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got := rate.Limit().PerSecond(); got != 14 || fake.calls["GetAccount"] != 1 {
			t.Errorf("a rate of %v after %d questions, want 14 after 1", got, fake.calls["GetAccount"])
		}
		fake.quota = 50
		for _, wait := range []time.Duration{10 * time.Minute, 6 * time.Minute} {
			time.Sleep(wait)
			handler.Handle(t.Context(), mailEvent(""))
		}
		if got := rate.Limit().PerSecond(); got != 50 || fake.calls["GetAccount"] != 2 {
			t.Errorf("a rate of %v after %d questions, want 50 after 2", got, fake.calls["GetAccount"])
		}
	})
}

func TestTheRateStaysWhatItIsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		denied      string
		quota, most float64
		want        float64
		asked       int // in 20 minutes, with a mail in each
	}{
		"refused":                 {"GetAccount", 14, 0, 1, 2},
		"refused, with its own":   {"GetAccount", 14, 10, 10, 2},
		"refused, with a low one": {"GetAccount", 14, 0.5, 0.5, 2},
		"with a cap":              {"", 14, 5, 5, 2},
		"with a high cap":         {"", 14, 500, 14, 2},
		"an emulator":             {"emulator", 0, 0, math.Inf(1), 2},
		"an emulator, with a cap": {"emulator", 0, 5, 5, 2},
		"no maximum":              {"", -1, 0, 1, 2},
		"no account":              {"lost", 0, 0, 1, 42}, // twice each time,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fake := &fakeSES{denied: c.denied, quota: c.quota}
				fake.noAccount = c.denied == "emulator"
				if c.denied == "lost" {
					fake.lost = true
				}
				rate := handlers.NewSESRate(fake.client(), c.most)
				handler := fake.handler(t, handlers.SESConfig{Rate: rate})
				for range 21 {
					if _, err := handler.Handle(t.Context(), mailEvent("")); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute)
				}
				if got := rate.Limit().PerSecond(); got != c.want {
					t.Errorf("a rate of %v, want %v", got, c.want)
				}
				if asked := fake.calls["GetAccount"]; asked != c.asked {
					t.Errorf("asked %d times, want %d", asked, c.asked)
				}
			})
		})
	}
}

// A mail must not wait for the rate longer than it may take itself.
func TestAMailThatWaitsForTheRateEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeSES{quota: 14, latency: time.Hour}
		fake.answers = 1 // the question is late
		handler := fake.handler(t, handlers.SESConfig{Rate: handlers.NewSESRate(fake.client(), 0)})
		go handler.Handle(t.Context(), mailEvent(""))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := handler.Handle(ctx, mailEvent("")); err == nil || ctx.Err() == nil {
			t.Errorf("the error is %v, want the context's end", err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v, want 1 s", took)
		}
	})
}

func ExampleNewSESRate() {
	fake := &fakeSES{quota: 14} // in place of SES
	rate := handlers.NewSESRate(fake.client(), 0)
	handler, err := handlers.NewSES(handlers.SESConfig{From: "orders@shop.example", Client: fake.client(), Rate: rate})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := outbox.Registry{"order.placed.mail": {Handler: handler, Destination: "mail", Limit: rate.Limit()}}

	fmt.Println(rate.Limit().PerSecond())
	_, err = registry["order.placed.mail"].Handler.Handle(context.Background(), outbox.Event{
		Payload: []byte(`{"to": ["ann@customer.example"], "subject": "Your order", "text": "Thank you."}`),
	})
	fmt.Println(err, rate.Limit().PerSecond())
	// Output:
	// 1
	// <nil> 14
}
