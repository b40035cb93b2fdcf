package kube_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// An agent writes the annotation, so it counts only if all of it is valid.
func TestWireGuardOf(t *testing.T) {
	entry := func(port int) string {
		return fmt.Sprintf(`{"publicKey": "%s=", "port": %d}`, strings.Repeat("A", 43), port)
	}
	for name, c := range map[string]struct {
		text string
		keys int
	}{
		"none":                {"", 0},
		"one":                 {`{"keys": [` + entry(51820) + `]}`, 1},
		"two":                 {`{"keys": [` + entry(51821) + `,` + entry(51820) + `], "connected": true}`, 2},
		"no key":              {`{"keys": []}`, 0},
		"a short key":         {`{"keys": [{"publicKey": "AAAA", "port": 51820}]}`, 0},
		"no port":             {`{"keys": [` + entry(51820) + `,` + entry(0) + `]}`, 0},
		"more than any needs": {`{"keys": [` + strings.Repeat(entry(1)+",", 4) + entry(2) + `]}`, 0},
		"another program's":   {`"yes"`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := kube.WireGuardOf(&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kube.WireGuardAnnotation: c.text}},
			})
			if c.keys == 0 && got != nil || c.keys > 0 && (got == nil || len(got.Keys) != c.keys || got.Key(51820) == "" || got.Key(1) != "") {
				t.Errorf("got %+v", got)
			}
		})
	}
}
