package routes

import (
	"errors"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/sns"
	"go.yaml.in/yaml/v3"
)

// FirstOnAWS returns the first destination by name that needs [Options].AWS, or "" when none does.
func (f File) FirstOnAWS() string {
	var names []string
	for name, destination := range f.Destinations {
		if destination.SNS != nil || destination.SES != nil {
			names = append(names, name)
		}
	}
	for _, route := range f.Routes {
		if (route.OnDiscard != OnDiscard{}) {
			names = append(names, route.To)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return slices.Min(names)
}

// clients makes each client once, for all destinations of its kind.
type clients struct {
	options Options
	sns     *sns.Client
	mail
	notifiers
}

var errNoRegion = errors.New("takes an AWS configuration with a region, has none")

func (c *clients) forSNS() (*sns.Client, error) {
	if c.options.AWS.Region == "" {
		return nil, errNoRegion
	}
	if c.sns == nil {
		c.sns = sns.NewFromConfig(c.options.AWS)
	}
	return c.sns, nil
}

// positive returns a whole number above zero, or zero once a fault was reported.
func (p *parser) positive(node *yaml.Node, path string) int {
	return p.atLeast(1, node, path, "is no whole number above zero, written in digits")
}

// atLeast returns a whole number, or zero once a fault was reported: problem when it is none, or less.
func (p *parser) atLeast(least int, node *yaml.Node, path, problem string) int {
	value := node.Value
	switch {
	case node.Kind == yaml.ScalarNode && node.ShortTag() == "!!int":
	case node.Kind == yaml.ScalarNode && node.ShortTag() == "!!str" && hasVariable(value):
		t, ok := p.text(node, path)
		if !ok {
			return 0
		}
		value = t.value
	default:
		p.wrongKind(node, path, "a whole number")
		return 0
	}
	number, err := strconv.Atoi(value)
	if err != nil || number < least {
		p.report(node.Line, path, "%s", problem)
		return 0
	}
	return number
}
