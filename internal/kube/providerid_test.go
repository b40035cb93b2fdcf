package kube_test

import (
	"errors"
	"testing"

	"github.com/underlay-ccm/underlay/internal/kube"
)

func TestProviderIDsNameOneMachineOrNone(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]struct {
		server, dedicated int64
		others            bool // of another provider
	}{
		"hcloud://42":     {server: 42},
		"hrobot://321":    {dedicated: 321},
		"hcloud://bm-321": {dedicated: 321},
		"underlay://m1":   {others: true},
		"aws:///i-1":      {others: true},
		"":                {others: true},
		"hrobot://":       {},
		"hrobot://-1":     {},
		"hcloud://bm-x":   {},
		"hcloud://0":      {},
	} {
		server, errServer := kube.ParseProviderID(id)
		dedicated, errDedicated := kube.ParseDedicatedID(id)
		if server != want.server || dedicated != want.dedicated {
			t.Errorf("%q: cloud server %d, dedicated server %d, want %d and %d", id, server, dedicated, want.server, want.dedicated)
		}
		others := errors.Is(errServer, kube.ErrOtherProvider) &&
			errors.Is(errDedicated, kube.ErrOtherProvider)
		if others != want.others {
			t.Errorf("%q: another provider's %t, want %t (%v; %v)", id, others, want.others, errServer, errDedicated)
		}
		if dedicated > 0 && kube.FormatDedicatedID(dedicated) != "hrobot://321" {
			t.Errorf("%q: written again as %q", id, kube.FormatDedicatedID(dedicated))
		}
	}
}
