package routes

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Record holds the routes that a cluster wrote to a table or adopted there. It has a route from
// before the request that adds it, so that no existing route is unrecorded, until the table no
// longer has the route. A destination has two routes in it while its gateway is changed.
type Record map[Route]bool

// ParseRecord parses a record's text. Its error names the entries that it skipped.
func ParseRecord(text map[string]string) (Record, error) {
	record := Record{}
	var wrong []error
	for _, key := range slices.Sorted(maps.Keys(text)) {
		dst, err := netip.ParsePrefix(strings.NewReplacer("_", "/", "-", ":").Replace(key))
		if err != nil {
			wrong = append(wrong, fmt.Errorf("key %q: %w", key, err))
			continue
		}
		for gateway := range strings.FieldsSeq(text[key]) {
			via, err := netip.ParseAddr(gateway)
			if err != nil {
				wrong = append(wrong, fmt.Errorf("key %q: %w", key, err))
				continue
			}
			record[Route{dst.Masked(), via}] = true
		}
	}
	return record, errors.Join(wrong...)
}

// Text returns the record's text: gateways by destination, as "10.0.0.5" at "10.244.3.0_24".
func (r Record) Text() map[string]string {
	text := make(map[string]string, len(r))
	toKey := strings.NewReplacer("/", "_", ":", "-") // to the characters allowed in a ConfigMap key
	for _, route := range sortRoutes(slices.Collect(maps.Keys(r))) {
		key := toKey.Replace(route.Dst.String())
		text[key] = strings.TrimSpace(text[key] + " " + route.Via.String())
	}
	return text
}
