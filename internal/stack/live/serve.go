package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/openlup/outbox-dispatch/internal/stack/cloud"
	"github.com/openlup/outbox-dispatch/internal/stack/lambda"
	"github.com/openlup/outbox-dispatch/internal/stack/postgres"
)

// interval is the schedule's: a minute in life is too long to watch.
const interval = 2 * time.Second

// Topics, each the name of a queue too; what is printed comes from a second queue, so that the first keeps its messages
// for who explores.
const (
	standard = "shipments"
	ordered  = "stock.fifo"
)

const routes = `version: 1
destinations:
  webhook: {http: {url: "${HOOK}/hook", secrets: ["${HOOK_SECRET}"], timeout: 5s, allow_http: true, allow_ports: [1-65535], allow_private: [127.0.0.0/8]}}
  topic:   {sns: {topic_arn: "${STANDARD_TOPIC}", timeout: 5s}}
  fifo:    {sns: {topic_arn: "${FIFO_TOPIC}", timeout: 5s}}
  mail:    {ses: {from: "Shop <shop@example.com>", from_allowed: ["@example.com"], timeout: 5s}}
routes:
  order.placed: {to: webhook}
  order.shipped: {to: topic}
  stock.reserved: {to: fifo}
  user.welcomed: {to: mail}
`

// Serve is the stack's process: it runs everything until ctx ends, and logs to standard error. [Up] starts it.
func Serve(ctx context.Context, root, folder string) (err error) {
	p := place{path: folder}
	l, err := openLock(p.lock())
	if err != nil {
		return err
	}
	defer l.close()
	if free, err := l.take(); err != nil || !free {
		return errors.Join(errors.New("another stack runs here"), err)
	}
	received, err := os.OpenFile(p.received(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, received.Close()) }()
	s := &stack{place: p, root: root, feed: &feed{out: received}}
	s.hook = newHook(s.feed)
	defer s.hook.Close()
	emulator := cloud.Boot()
	defer emulator.Close()
	if s.cloud, err = emulator.Front(nil); err != nil {
		return err
	}
	defer s.cloud.Close()
	s.cloud.PlayBatches()
	if err := s.cloud.CreateTemplate(ctx, "order-confirmed", "Your order {{number}}", "Thank you."); err != nil {
		return err
	}
	return s.run(ctx)
}

// stack is what runs.
type stack struct {
	place
	root     string // of the repository
	feed     *feed
	hook     *hook
	cloud    *cloud.Cloud
	queues   map[string]string // URLs, by name
	watched  []string          // URLs of the queues that are printed
	database string
}

func (s *stack) run(ctx context.Context) (err error) {
	if err := s.subscribe(ctx); err != nil {
		return err
	}
	server, err := postgres.Start(ctx, postgres.Config{Log: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	s.database = server.URL
	if err := s.migrate(ctx); err != nil {
		return err
	}
	event, err := os.ReadFile(filepath.Join(s.root, "events", "schedule.json"))
	if err != nil {
		return err
	}
	dispatch, err := s.function(ctx, "dispatch")
	if err != nil {
		return err
	}
	defer func() { dispatch.Stop() }()
	err = s.writeState(State{
		Process: os.Getpid(), Since: time.Now(), Database: s.database, Cloud: s.cloud.URL, Hook: s.hook.URL, Queues: s.queues, Folder: os.TempDir(),
	})
	if err != nil {
		return err
	}
	for tick := time.NewTicker(interval); ; {
		reply, err := dispatch.Invoke(ctx, event)
		if err != nil && ctx.Err() == nil { // the sandbox died; the platform would start another
			_, _ = fmt.Fprintln(os.Stderr, "stack:", err)
			dispatch.Stop()
			if dispatch, err = s.function(ctx, "dispatch"); err != nil {
				return err
			}
		}
		if err := s.watch(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		s.feed.pass(reply)
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-tick.C:
		}
	}
}

// subscribe makes the topics, with two queues each.
func (s *stack) subscribe(ctx context.Context) error {
	s.queues = map[string]string{}
	for _, topic := range []string{standard, ordered} {
		arn, err := s.cloud.CreateTopic(ctx, topic)
		if err != nil {
			return err
		}
		if s.queues[topic], err = s.cloud.Subscribe(ctx, arn, topic, true); err != nil {
			return err
		}
		watched, err := s.cloud.Subscribe(ctx, arn, "watched-"+topic, true)
		if err != nil {
			return err
		}
		s.watched = append(s.watched, watched)
	}
	return nil
}

func (s *stack) migrate(ctx context.Context) error {
	migrate, err := s.function(ctx, "migrate")
	if err != nil {
		return err
	}
	defer migrate.Stop()
	reply, err := migrate.Invoke(ctx, []byte("{}"))
	if err != nil {
		return err
	}
	if !lambda.Succeeded(reply) {
		return fmt.Errorf("the migrate function failed: %s", reply)
	}
	return nil
}

func (s *stack) function(ctx context.Context, name string) (*lambda.Function, error) {
	builder := lambda.Builder{Root: s.root, Log: os.Stderr}
	config := lambda.Config{Log: os.Stderr, Timeout: 30 * time.Second, Env: []string{
		"DATABASE_URL=" + s.database, "OUTBOX_ROUTES=" + routes, "OUTBOX_ROUTES_FILE=",
		"DATABASE_SECRET_ARN=", "OUTBOX_DB_IAM_AUTH=", "OUTBOX_ROUTES_SECRET_ARN=", // whatever the shell has
		"HOOK=" + s.hook.URL, "HOOK_SECRET=" + s.hook.key.Secret(),
		"STANDARD_TOPIC=" + cloud.TopicARN(standard), "FIFO_TOPIC=" + cloud.TopicARN(ordered),
	}}
	config.Env = append(config.Env, s.cloud.Env()...)
	var err error
	if config.Emulator, err = builder.Emulator(ctx); err != nil {
		return nil, err
	}
	if config.Binary, err = builder.Built(name); err != nil { // by Up
		return nil, err
	}
	return lambda.Start(ctx, config)
}

// watch prints what came to queues and mailbox.
func (s *stack) watch(ctx context.Context) error {
	for _, queue := range s.watched {
		messages, err := s.cloud.Receive(ctx, queue)
		if err != nil {
			return err
		}
		for _, m := range messages {
			s.feed.message(filepath.Base(queue)[len("watched-"):], m)
		}
	}
	mails, err := s.cloud.Mails(ctx)
	if err != nil {
		return err
	}
	s.feed.mails(mails)
	return nil
}
