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
