package config

import (
	"regexp"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/internal/editdistance"
)

// refusedKey explains a key that people have reason to try.
func refusedKey(field string) (problem, remedy string, known bool) {
	switch strings.ToLower(field) {
	case "token", "hcloud_token":
		return "the token does not belong in this file", "put it into a file of its own and name that in tokenFile", true
	}
	return "", "", false
}

// unknown says what is wrong with a key that no row has. It never repeats
// the value: whoever mistypes tokenFile may have put the token there.
func (r *fileReader) unknown(field string) (problem, remedy string) {
	if problem, remedy, known := refusedKey(field); known {
		return problem, remedy
	}
	section, _, nested := cutLast(field)
	if !nested {
		section = ""
	}
	var neighbors []string
	for _, name := range r.keysIn(section) {
		neighbors = append(neighbors, fieldIn(section, name))
	}
	nearest := nearestKey(field, neighbors)
	if nearest == "" && !strings.Contains(section, "[") { // entries of lists have keys of one kind
		nearest = nearestKey(field, r.allKeys())
	}
	if nearest != "" {
		return "unknown key", "did you mean " + nearest + "?"
	}
	return "unknown key", "remove it, or use one of " + strings.Join(r.keysIn(section), ", ")
}

// allKeys are all keys and sections; those in a list's items stand there once,
// as in pools[].name.
func (r *fileReader) allKeys() []string {
	var keys []string
	for _, row := range r.rows {
		if row.key == "" || strings.Contains(row.key, "[") {
			continue
		}
		keys = append(keys, row.key)
		if section, _, nested := cutLast(row.key); nested && !slices.Contains(keys, section) {
			keys = append(keys, section)
		}
	}
	for _, l := range r.lists {
		keys = append(keys, l.key)
	}
	for _, row := range itemReference() {
		keys = append(keys, row.key)
	}
	return keys
}

var itemNumber = regexp.MustCompile(`\[[0-9]+\]`)

// keysIn returns the names that may stand directly in a section.
func (r *fileReader) keysIn(section string) []string {
	section = itemNumber.ReplaceAllString(section, "[]")
	var names []string
	for _, key := range r.allKeys() {
		in, last, nested := cutLast(key)
		if !nested {
			in, last = "", key
		}
		if in == section {
			names = append(names, last)
		}
	}
	return names
}

func (r *fileReader) isSection(field string) bool {
	return slices.ContainsFunc(r.rows, func(s setting) bool { return strings.HasPrefix(s.key, field+".") })
}

func cutLast(key string) (section, last string, nested bool) {
	at := strings.LastIndex(key, ".")
	if at < 0 {
		return "", key, false
	}
	return key[:at], key[at+1:], true
}

// nearestKey returns the known key that was probably meant: one with the same
// last part in another section, or one a few letters away; else nothing.
func nearestKey(field string, known []string) string {
	_, last, _ := cutLast(field)
	nearest, best := "", max(1, min(len(last), 30)/3)+1
	for _, key := range known {
		_, knownLast, _ := cutLast(key)
		away := min(
			editdistance.Between(strings.ToLower(field), strings.ToLower(key)),
			editdistance.Between(strings.ToLower(last), strings.ToLower(knownLast)),
		)
		if away < best {
			nearest, best = key, away
		}
	}
	return nearest
}
