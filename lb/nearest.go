package lb

// nearest returns the candidate that takes the fewest single-character edits to become name; the first of
// several.
func nearest(name string, candidates []string) string {
	best, bestEdits := "", -1
	for _, c := range candidates {
		if e := edits(name, c); bestEdits < 0 || e < bestEdits {
			best, bestEdits = c, e
		}
	}
	return best
}

// edits is the Levenshtein distance: one row of the table at a time.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
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
