// Package editdistance compares names that users type, for "did you mean …?".
package editdistance

// Between returns the Levenshtein distance of two texts in bytes: the minimum number of
// single-byte insertions, deletions and substitutions that change a into b.
func Between(a, b string) int {
	row := make([]int, len(b)+1) // of the distance table, for the first i bytes of a
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

// slips is the maximum distance to the intended name: a letter or two, or a short ending.
const slips = 3

// Meant returns the known name nearest to name, and reports whether name is a slip of it.
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
