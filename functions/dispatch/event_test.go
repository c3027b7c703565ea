package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestEventShapes(t *testing.T) {
	t.Parallel()
	sample := func(name string) string {
		text, err := os.ReadFile("../../events/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	routed := []string{"order.paid", "order.placed"}
	for name, test := range map[string]struct{ payload, want string }{
		"empty object":            {`{}`, "[] 0"},
		"null":                    {` null `, "[] 0"},
		"no body":                 {"", "[] 0"},
		"blank body":              {" \n", "[] 0"},
		"schedule":                {sample("schedule.json"), "[] 0"},
		"rule":                    {sample("schedule-rule.json"), "[] 0"},
		"manual":                  {sample("dispatch-manual.json"), "[order.placed] 10"},
		"scheduler without input": {`{"version":"0","source":"aws.scheduler","detail-type":"Scheduled Event","detail":"{}","eventTypes":"theirs"}`, "[] 0"},
		"a schedule of one type":  {`{"source":"schedule","scheduleArn":"a","executionId":"e","attemptNumber":"1","eventTypes":["order.paid"]}`, "[order.paid] 0"},
		"types twice":             {`{"eventTypes":["order.placed","order.paid","order.placed"]}`, "[order.paid order.placed] 0"},
		"batch size only":         {`{"batchSize":1000}`, "[] 1000"},

		"text":                {`"now"`, "not a JSON object, takes {} or eventTypes, batchSize, source"},
		"list":                {`[]`, "not a JSON object"},
		"no JSON":             {`{`, "not a JSON object"},
		"another source":      {`{"source":"my.shop","detail":{}}`, `source: got "my.shop", takes "aws.events", "aws.scheduler" or "schedule"`},
		"a source of no text": {`{"source":7}`, "source: got 7"},
		"unknown key":         {`{"eventType":"order.placed"}`, `unknown key "eventType", takes eventTypes, batchSize, source`},
		"a schedule's key":    {`{"scheduledTime":"now"}`, `scheduledTime: taken beside source "schedule" only`},
		"unknown types":       {`{"eventTypes":["order.lost","order.paid","Order.Placed"]}`, `eventTypes: no route for "order.lost", "Order.Placed", takes some of order.paid, order.placed`},
		"no types":            {`{"eventTypes":[]}`, "eventTypes: got [], takes a list of at least one event type"},
		"null types":          {`{"eventTypes":null}`, "eventTypes: got null"},
		"a null type":         {`{"eventTypes":[null]}`, "eventTypes: got [null]"},
		"one type":            {`{"eventTypes":"order.placed"}`, `eventTypes: got "order.placed"`},
		"batch size 0":        {`{"batchSize":0}`, "batchSize: got 0, takes a whole number from 1 to 1000"},
		"batch size 1001":     {`{"batchSize":1001}`, "batchSize: got 1001"},
		"batch size 1.5":      {`{"batchSize":1.5}`, "batchSize: got 1.5"},
		"batch size text":     {`{"batchSize":"` + strings.Repeat("x", 500) + `"}`, "xxx…"},
		"several":             {`{"batchSize":null,"eventTypes":7,"limit":1}`, "batchSize: got null, takes a whole number from 1 to 1000\neventTypes: got 7, takes a list of at least one event type\nunknown key \"limit\""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pass, err := parseEvent([]byte(test.payload), routed)
			if err == nil {
				if got := fmt.Sprint(pass.EventTypes, " ", pass.BatchSize); got != test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
				return
			}
			var fault *EventError
			if !errors.As(err, &fault) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %T %v, want an EventError with %s", err, err, test.want)
			}
			if len(pass.EventTypes) != 0 || pass.BatchSize != 0 {
				t.Errorf("got %+v beside an error", pass)
			}
		})
	}
}
