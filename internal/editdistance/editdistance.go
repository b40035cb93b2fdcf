// Package editdistance compares names that people type, for "did you mean …?".
package editdistance

// Between returns the Levenshtein distance of two texts in bytes: how many single-byte insertions,
// deletions and substitutions make a become b.
func Between(a, b string) int {
	row := make([]int, len(b)+1) // of the table, for a's first i bytes
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// slips is how far a name may be from the one that was meant: a letter or two, or a short ending.
const slips = 3

// Meant returns the known name that a name is a slip of, and reports whether there is one. A known
// name is no slip.
func Meant(name string, known []string) (meant string, slip bool) {
	best := slips + 1
	for _, k := range known {
		if more := len(name) - len(k); more >= best || -more >= best {
			continue
		}
		if edits := Between(name, k); edits < best {
			meant, best = k, edits
		}
	}
	return meant, best > 0 && best <= slips
}
