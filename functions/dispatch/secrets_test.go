package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

const (
	crmARN     = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:shop/crm-AbCdEf"
	keyARN     = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:shop/key-AbCdEf"
	goodSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

const secretRoutes = `
version: 1
destinations:
  hook:
    http: {url: "${` + crmARN + `#url}", secrets: ["${` + keyARN + `}"], allow_http: true, allow_ports: [1-65535], allow_private: [127.0.0.0/8]}
routes:
  order.placed: {to: hook}
`

// ageSecrets makes every secret due to be read again.
func ageSecrets(a *app) {
	all := a.rails.config.router.secrets
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, one := range all.known {
		one.due = time.Time{}
	}
}

func (f *fakeAWS) name(secrets map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.named = maps.Clone(secrets)
}

// startWithReferences is an app whose routes, in the environment, refer to secrets of the fake.
func startWithReferences(t *testing.T, db string, l *logs, fake *fakeAWS) *app {
	t.Helper()
	a := newApp(t.Context(), environment(map[string]string{"DATABASE_URL": db, "OUTBOX_ROUTES": secretRoutes}), fake.load, l.logger())
	if a.fault != nil {
		t.Fatal(a.fault)
	}
	t.Cleanup(a.pool.Close)
	return a
}

func TestSecretsThatRoutesReferToAreReadAndRefreshed(t *testing.T) {
	t.Parallel()
	hook, bodies := receiver(t)
	fake := startAWS(t, "")
	var l logs
	db := postgrestest.URL(t)
	a := startWithReferences(t, db, &l, fake)
	if fake.secretReads() != 0 {
		t.Error("a secret was read before an invocation")
	}
	good := map[string]string{crmARN: `{"url":"` + hook + `","hunter2":1}`, keyARN: goodSecret}
	with := func(arn, value string) map[string]string {
		changed := maps.Clone(good)
		changed[arn] = value
		return changed
	}
	for _, test := range []struct {
		name    string
		secrets map[string]string
		want    string
	}{
		{"none", map[string]string{}, "configuration: OUTBOX_ROUTES: secret shop/crm-AbCdEf#url: operation error Secrets Manager"},
		{"the other one", map[string]string{crmARN: "{}"}, "secret shop/key-AbCdEf: operation error Secrets Manager"},
		{"first", good, "<nil>"},
		{"the same", good, "<nil>"},
		{"unreadable, the last ones stay", map[string]string{}, "<nil>"},
		{"changed to a fault", with(keyARN, "hunter2"), "OUTBOX_ROUTES:5: destinations.hook.http.secrets[0]: "},
		{"without the key", with(crmARN, `{"other":"hunter2"}`), "secret shop/crm-AbCdEf#url: its JSON object has no such key"},
		{"no object", with(crmARN, `hunter2`), "secret shop/crm-AbCdEf#url: it is no JSON object"},
		{"a list", with(crmARN, `{"url":["hunter2"]}`), "what stands there is no text, number or boolean"},
		{"null", with(crmARN, `{"url":null}`), "what stands there is no text, number or boolean"},
		{"empty", with(crmARN, `{"url":""}`), "destinations.hook.http.url: secret shop/crm-AbCdEf#url is empty"},
		{"mended", good, "<nil>"},
	} {
		fake.name(test.secrets)
		ageSecrets(a)
		_, err := invoke(t, a, `{}`)
		if got := fmt.Sprint(err); !strings.Contains(got, test.want) || strings.Contains(got, "hunter2") {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
	if got := strings.Count(l.text.String(), "[outbox-dispatch] secret_unread"); got != 2 {
		t.Errorf("got %d warnings of unread secrets, want one for each of the two", got)
	}
	if strings.Contains(l.text.String(), "hunter2") || strings.Contains(l.text.String(), goodSecret) {
		t.Errorf("the log shows a secret:\n%s", &l.text)
	}
	reads := fake.secretReads()
	execute(t, db, fmt.Sprintf(insertEach, "{}", "{}"))
	if result, err := invoke(t, a, `{}`); err != nil || result.Processed != 1 {
		t.Errorf("got %+v, %v, want one processed", result, err)
	}
	if fake.secretReads() != reads {
		t.Error("a secret was read again within its life")
	}
	if got := bodies(); len(got) != 1 {
		t.Errorf("the receiver got %v, want one event", got)
	}
}

// A new value is used without a new process.
func TestChangedSecretLeadsElsewhere(t *testing.T) {
	t.Parallel()
	first, firstBodies := receiver(t)
	second, secondBodies := receiver(t)
	fake := startAWS(t, "")
	db := postgrestest.URL(t)
	a := startWithReferences(t, db, &logs{}, fake)
	for i, hook := range []string{first, second} {
		fake.name(map[string]string{crmARN: `{"url":"` + hook + `"}`, keyARN: goodSecret})
		ageSecrets(a)
		execute(t, db, fmt.Sprintf(`insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
			values ('order', '00000000-0000-4000-8000-000000000001', 'order.placed', '%d', '{}')`, i))
		if result, err := invoke(t, a, `{}`); err != nil || result.Processed != 1 {
			t.Errorf("got %+v, %v, want one processed", result, err)
		}
	}
	if got, later := len(firstBodies()), len(secondBodies()); got != 1 || later != 1 {
		t.Errorf("the receivers got %d and %d events, want one each", got, later)
	}
}

// What needs no secret to be seen is a fault at the start, and nobody is asked.
func TestFaultsAreSeenWithoutTheSecrets(t *testing.T) {
	t.Parallel()
	text := strings.Replace(secretRoutes, "allow_http: true", "timeout: '${UNSET}', alow_http: true", 1)
	_, err := load(t, map[string]string{"OUTBOX_ROUTES": text})
	for _, want := range []string{"OUTBOX_ROUTES:5: destinations.hook.http.timeout: environment variable UNSET is not set", `unknown key "alow_http"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestRoutesInASecretMayReferToOthers(t *testing.T) {
	t.Parallel()
	hook, _ := receiver(t)
	fake := startAWS(t, secretRoutes)
	fake.name(map[string]string{crmARN: `{"url":"` + hook + `"}`, keyARN: goodSecret})
	a := startWithSecret(t, &logs{}, fake)
	if result, err := invoke(t, a, `{}`); err != nil || !result.OK {
		t.Errorf("got %+v, %v", result, err)
	}
	if got := fake.secretReads(); got != 3 {
		t.Errorf("%d readings, want one of each secret", got)
	}
}

func TestOneSecretIsReadOnceForAllWhoAsk(t *testing.T) {
	t.Parallel()
	fake := startAWS(t, "")
	fake.name(map[string]string{crmARN: `{"url":"u","port":8443,"on":true}`})
	all := &secrets{cloud: &cloud{load: fake.load}}
	var wait sync.WaitGroup
	for range 20 {
		for key, want := range map[string]string{"#url": "u", "#port": "8443", "#on": "true", "": `{"url":"u","port":8443,"on":true}`} {
			wait.Go(func() {
				if got, err := all.resolve(t.Context(), crmARN+key); err != nil || got != want {
					t.Errorf("%s: got %s, %v, want %s", key, got, err, want)
				}
			})
		}
	}
	wait.Wait()
	if got := fake.secretReads(); got != 1 {
		t.Errorf("read %d times, want once", got)
	}
}

func TestSilentSecretsManagerHoldsUpNobodyForLong(t *testing.T) {
	t.Parallel()
	silent := &fakeAWS{url: "http://" + silentServer(t)}
	all := &secrets{cloud: &cloud{load: silent.load}}
	var references []string
	for i := range 30 {
		references = append(references, fmt.Sprintf("%s%d#k", crmARN, i))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := all.all(ctx, references)
	if err == nil || ctx.Err() != nil || strings.Count(err.Error(), errSecretTimeout.Error()) != len(references) {
		t.Errorf("got %v, %v, want every one unread before the deadline", err, ctx.Err())
	}
}
