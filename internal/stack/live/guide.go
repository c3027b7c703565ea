package live

import (
	"strconv"
	"strings"
	"time"

	"github.com/openlup/outbox-dispatch/internal/stack/cloud"
)

const guideText = `
{headline}

  database   psql '{database}'
  arriving   tail -f {received}      webhooks, SQS messages, mails, and what each pass did
  log        tail -f {log}           functions, emulator, PostgreSQL
  running    since {since}, process {process}; dispatch every {interval}, as the schedule does every minute
  to end it  make down

One event for each destination, for psql:

  insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
  values ('order', gen_random_uuid(), 'order.placed', gen_random_uuid()::text, '{"total": "99.90"}');      -- webhook

  insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
  values ('order', gen_random_uuid(), 'order.shipped', gen_random_uuid()::text, '{"parcel": "A-1"}');      -- SNS, SQS

  insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
  values ('item', gen_random_uuid(), 'stock.reserved', gen_random_uuid()::text, '{"sku": "A-1"}');         -- SNS FIFO, SQS

  insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
  values ('user', gen_random_uuid(), 'user.welcomed', gen_random_uuid()::text,
          '{"to": ["ann@example.com"], "subject": "Welcome", "text": "Hello Ann"}');                       -- SES

The other mails of docs/routes.md go too: the template order-confirmed is there, and news@example.com may send.
What the emulator of AWS lacks: sequence numbers of FIFO topics in metadata.

  select position, event_type, status, attempts, error from outbox_events order by position desc limit 10;

Let the webhook fail, and heal (500 is retried, 503 waits for a minute, 410 discards and holds the destination
until select outbox_circuit_reset('webhook')):

  curl -d 500 {hook}/answer
  curl -d 200 {hook}/answer

SNS, SQS and SES, by any client of AWS:

  export AWS_ENDPOINT_URL={cloud} AWS_REGION={region} AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local
  aws sqs receive-message --message-attribute-names All --queue-url {queue}
  curl {cloud}/kumo/ses/v2/sent-emails
`

// guide tells a person what runs and what to try.
func guide(s State, p place, headline string) string {
	return strings.TrimPrefix(strings.NewReplacer(
		"{headline}", headline, "{database}", s.Database,
		"{since}", s.Since.Format(time.TimeOnly), "{interval}", interval.String(),
		"{process}", strconv.Itoa(s.Process), "{received}", p.received(), "{log}", p.log(),
		"{hook}", s.Hook, "{cloud}", s.Cloud, "{region}", cloud.Region, "{queue}", s.Queues[standard],
	).Replace(guideText), "\n")
}
