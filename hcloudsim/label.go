package hcloudsim

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

var (
	labelName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	labelPrefix = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
)

const (
	prefixMost     = 253
	reservedPrefix = "hetzner.cloud"
)

// checkLabels validates labels against the grammar in the API's introduction.
func checkLabels(labels map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if !validKey(key) {
			return errInvalid("labels", "'%s' is no label key", key)
		}
		if prefix, _, ok := strings.Cut(key, "/"); ok && prefix == reservedPrefix {
			return errInvalid("labels", "the prefix of '%s' is reserved", key)
		}
		if !validValue(labels[key]) {
			return errInvalid("labels", "the value of '%s' is no label value", key)
		}
	}
	return nil
}

func validKey(key string) bool {
	prefix, name, found := strings.Cut(key, "/")
	if !found {
		return labelName.MatchString(key)
	}
	return len(prefix) <= prefixMost && labelPrefix.MatchString(prefix) && labelName.MatchString(name)
}

func validValue(value string) bool { return value == "" || labelName.MatchString(value) }
