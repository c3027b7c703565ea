package main

import (
	"fmt"
	"math"
)

// figure is one measured number. RatioTo names the figure of the same run that Ratio compares it with: value divided
// by that figure's value.
type figure struct {
	Name    string   `json:"name"`
	Value   float64  `json:"value"`
	Unit    string   `json:"unit"`
	RatioTo *string  `json:"ratio_to"`
	Ratio   *float64 `json:"ratio"`

	target target
	inRow  bool // shown in a row of claims, not in a line of its own
}

func (f figure) ratio() float64 {
	if f.Ratio == nil {
		return 0
	}
	return *f.Ratio
}

// target is the limit of a figure's ratio or, when it has none, of its value. The zero value is none.
type target struct {
	limit  float64
	atMost bool // otherwise at least
}

func atLeast(limit float64) target { return target{limit: limit} }
func atMost(limit float64) target  { return target{limit: limit, atMost: true} }

func (t target) String() string {
	switch {
	case t.limit == 0:
		return ""
	case t.atMost:
		return fmt.Sprintf("<= %g", t.limit)
	}
	return fmt.Sprintf(">= %g", t.limit)
}

// measured is what the target is about.
func (f figure) measured() float64 {
	if f.Ratio != nil {
		return *f.Ratio
	}
	return f.Value
}

func (f figure) missed() bool {
	return f.target.limit != 0 && f.shortfall() > 1
}

// shortfall is how many times better the figure had to be; 1 or less when the target is met.
func (f figure) shortfall() float64 {
	if f.target.atMost {
		return f.measured() / f.target.limit
	}
	if f.measured() == 0 {
		return math.Inf(1)
	}
	return f.target.limit / f.measured()
}

func (f figure) verdict() string {
	switch {
	case f.target.limit == 0:
		return ""
	case f.missed():
		return fmt.Sprintf("MISSED by %.2fx", f.shortfall())
	}
	return "met"
}

// number prints as many digits as mean something.
func number(value float64) string {
	switch {
	case value >= 100:
		return fmt.Sprintf("%.0f", value)
	case value >= 0.1 || value == 0:
		return fmt.Sprintf("%.2f", value)
	}
	return fmt.Sprintf("%.2g", value)
}
