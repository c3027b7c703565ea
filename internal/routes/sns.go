package routes

import (
	"go.yaml.in/yaml/v3"

	"github.com/openlup/outbox-dispatch/handlers"
)

// ownMaximum stands in max_message_bytes for what the topic says itself.
const ownMaximum = "topic"

// sns reads the kind sns.
func (p *parser) sns(kind entry) Destination {
	fields, ok := p.fields(kind.value, kind.path, "topic_arn", "topics", "max_message_bytes", "timeout")
	if !ok {
		return Destination{}
	}
	seen := places{}
	config := handlers.SNSConfig{TopicARN: p.required(kind, fields, "topic_arn", seen)}
	if topics, found := fields["topics"]; found {
		before := len(p.faults) + len(p.unknown)
		config.Topics = p.list(topics, "topics", seen)
		if len(p.faults)+len(p.unknown) == before { // else it is no fault that one is missing
			seen["topics"] = text{line: topics.line, path: topics.path}
		}
	} else {
		seen["topics"] = text{line: kind.line, path: join(kind.path, "topics")}
	}
	if limit, found := fields["max_message_bytes"]; found {
		p.maximum(limit, &config)
		seen["max_message_bytes"] = text{line: limit.value.Line, path: limit.path}
	}
	p.reportFields(config.Faults(), seen)
	return Destination{SNS: &config, Timeout: p.timeout(fields["timeout"])}
}

func (p *parser) maximum(limit entry, config *handlers.SNSConfig) {
	node := limit.value
	isWord := node.Kind == yaml.ScalarNode && node.ShortTag() == "!!str" && !hasVariable(node.Value)
	switch {
	case isWord && node.Value == ownMaximum:
		config.ReadMaximum = true
	case isWord:
		p.wrongKind(node, limit.path, "a whole number, or the word "+ownMaximum)
	default:
		config.MaxMessageBytes = p.positive(node, limit.path)
	}
}
