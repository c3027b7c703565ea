package main

import (
	"context"
	"fmt"
	"slices"
)

// contender is one way to do a job. measure does it once, from a fresh start, and returns the figure.
type contender struct {
	name    string
	measure func(context.Context) (float64, error)
}

// medians lets the contenders take turns, round after round, so that whatever else the machine does hits all of them,
// and returns the median of each.
func medians(ctx context.Context, rounds int, contenders []contender) (map[string]float64, error) {
	found := map[string][]float64{}
	for range rounds {
		for _, c := range contenders {
			value, err := c.measure(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			found[c.name] = append(found[c.name], value)
		}
	}
	result := map[string]float64{}
	for name, values := range found {
		result[name] = median(values)
	}
	return result, nil
}

// median sorts the values; of an even number it is the mean of the two in the middle.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
