package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func parseSizes(list string) ([]int, error) {
	var sizes []int
	for text := range strings.SplitSeq(list, ",") {
		size, err := parseSize(text)
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, size)
	}
	if !slices.IsSorted(sizes) {
		return nil, fmt.Errorf("size: %s, takes an ascending list", list)
	}
	return sizes, nil
}

// parseSize reads 100000, 100k or 1M.
func parseSize(text string) (int, error) {
	factor := 1
	digits := text
	if cut, ok := strings.CutSuffix(text, "k"); ok {
		digits, factor = cut, 1_000
	} else if cut, ok := strings.CutSuffix(text, "M"); ok {
		digits, factor = cut, 1_000_000
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > 100_000_000/factor {
		return 0, fmt.Errorf("size: %q, takes a number like 1000, 100k or 1M, up to 100M", text)
	}
	return n * factor, nil
}

// sizeName is the reverse of parseSize.
func sizeName(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return strconv.Itoa(n/1_000_000) + "M"
	case n >= 1_000 && n%1_000 == 0:
		return strconv.Itoa(n/1_000) + "k"
	}
	return strconv.Itoa(n)
}

func parseNames(flagName, list string, allowed []string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	names := strings.Split(list, ",")
	for _, name := range names {
		if !slices.Contains(allowed, name) {
			return nil, fmt.Errorf("%s: %q, takes %s", flagName, name, strings.Join(allowed, ", "))
		}
	}
	return names, nil
}
