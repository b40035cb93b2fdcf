package kube

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrOtherProvider marks the provider ID of a machine that Underlay does not manage.
var ErrOtherProvider = errors.New("machine of another provider")

const (
	scheme = "hcloud://"
	// Prefixes of provider IDs of dedicated servers, now and in old clusters.
	dedicatedScheme    = "hrobot://"
	oldDedicatedScheme = scheme + "bm-"
)

// FormatProviderID returns the provider ID of a cloud server.
func FormatProviderID(id int64) string { return scheme + strconv.FormatInt(id, 10) }

// ParseProviderID returns the ID of a cloud server. Dedicated servers (hrobot://<number>, in old
// clusters hcloud://bm-<number>) and all other schemes are ErrOtherProvider.
func ParseProviderID(s string) (int64, error) {
	text, ours := strings.CutPrefix(s, scheme)
	return numberOf(s, text, ours && !strings.HasPrefix(s, oldDedicatedScheme), scheme)
}

// FormatDedicatedID returns the provider ID of a dedicated server.
func FormatDedicatedID(number int64) string {
	return dedicatedScheme + strconv.FormatInt(number, 10)
}

// ParseDedicatedID returns a dedicated server's number, or ErrOtherProvider for any other machine.
func ParseDedicatedID(s string) (int64, error) {
	text, ours := strings.CutPrefix(s, dedicatedScheme)
	if !ours {
		text, ours = strings.CutPrefix(s, oldDedicatedScheme)
	}
	return numberOf(s, text, ours, dedicatedScheme)
}

func numberOf(providerID, text string, ours bool, scheme string) (int64, error) {
	if !ours {
		return 0, fmt.Errorf("provider ID %q: %w", providerID, ErrOtherProvider)
	}
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || number <= 0 {
		return 0, fmt.Errorf("provider ID %q: want %s<number>", providerID, scheme)
	}
	return number, nil
}
