package survey

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Join is each value's text, with a separator in between.
func Join[T fmt.Stringer](values []T, between string) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = v.String()
	}
	return strings.Join(texts, between)
}

// FamiliesText is such as "IPv4 cloud, IPv6 native".
func FamiliesText(families map[string]string) string {
	var texts []string
	for _, family := range slices.Sorted(maps.Keys(families)) {
		texts = append(texts, family+" "+families[family])
	}
	return strings.Join(texts, ", ")
}
