package hcloudsim

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// checkLabels validates labels against the grammar in the API's introduction, which is that of
// Kubernetes.
func checkLabels(all map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		switch {
		case len(validation.IsQualifiedName(key)) > 0:
			return errInvalid("labels", "'%s' is no label key", key)
		case strings.HasPrefix(key, "hetzner.cloud/"):
			return errInvalid("labels", "the prefix of '%s' is reserved", key)
		case len(validation.IsValidLabelValue(all[key])) > 0:
			return errInvalid("labels", "the value of '%s' is no label value", key)
		}
	}
	return nil
}

func newLabels(requested *map[string]string) (map[string]string, error) {
	if requested == nil {
		return nil, nil
	}
	return *requested, checkLabels(*requested)
}
