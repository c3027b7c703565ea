package routes

import "strings"

// suggest returns a hint for a word that is probably one of those taken, or "".
func suggest(word string, taken []string) string {
	best, distance := "", 3
	for _, candidate := range taken {
		// Two mistakes in a word of three letters make another word.
		d := editDistance(strings.ToLower(word), candidate)
		if d < distance && d <= len(candidate)/2 {
			best, distance = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + best + "?"
}

// editDistance counts the insertions, deletions and replacements that lead from a to b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
