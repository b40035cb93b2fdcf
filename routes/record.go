package routes

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Record holds the routes that a cluster wrote into a table or adopted there. It
// holds a route before the route is asked for, so that what stands is never
// unknown, and until the table no longer has it. A destination has two routes in
// it while its gateway is being changed.
type Record map[Route]bool

// ParseRecord reads a record's text form. What it can't read is left out, and
// named in the error.
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

// Text is the record's text form: gateways by destination, such as "10.0.0.5" at
// "10.244.3.0_24".
func (r Record) Text() map[string]string {
	text := make(map[string]string, len(r))
	toKey := strings.NewReplacer("/", "_", ":", "-") // what a ConfigMap's key may hold
	for _, route := range sortRoutes(slices.Collect(maps.Keys(r))) {
		key := toKey.Replace(route.Dst.String())
		text[key] = strings.TrimSpace(text[key] + " " + route.Via.String())
	}
	return text
}
