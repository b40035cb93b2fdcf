package hetzner_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
)

func (lab *balancerLab) primaryIP(t *testing.T, name, family string) int64 {
	t.Helper()
	made, err := lab.sim.CreatePrimaryIP(hcloudsim.PrimaryIPSeed{
		Name: name, Type: family, Location: "nbg1", Labels: map[string]string{
			"underlay.dev/adopt-cluster": labOwner.Cluster, "underlay.dev/adopt-namespace": "shop", "underlay.dev/adopt-service": "web",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// Each is looked up by one request, by its name or ID.
func TestPrimaryIPsAreFound(t *testing.T) {
	inLab(t, func(t *testing.T, lab *balancerLab) {
		web, six := lab.primaryIP(t, "web", "ipv4"), lab.primaryIP(t, "six", "ipv6")
		look := func(want []int64, reads int, named ...string) {
			t.Helper()
			lab.sim.ResetRequests()
			found, err := lab.PrimaryIPs(t.Context(), named)
			if err != nil {
				t.Fatal(err)
			}
			var ids []int64
			for _, ip := range found {
				ids = append(ids, ip.ID)
			}
			if got, _, _ := lab.counted(); got != reads || !slices.Equal(ids, want) {
				t.Errorf("%q: found %v in %d requests, want %v in %d", named, ids, got, want, reads)
			}
		}
		look([]int64{web}, 1, "web")
		look([]int64{six}, 1, strconv.FormatInt(six, 10))
		look(nil, 1, "unknown")
		look(nil, 1, "4711")
		look([]int64{web, six}, 2, "web", strconv.FormatInt(six, 10))
		look([]int64{web}, 2, "web", "unknown")

		found, err := lab.PrimaryIPs(t.Context(), []string{"web", "six"})
		if err != nil || len(found) != 2 {
			t.Fatalf("found %+v, %v", found, err)
		}
		first, second := found[0], found[1]
		if !first.Net.IsSingleIP() || !first.Net.Addr().Is4() || second.Net.Bits() != 64 ||
			second.Net.Addr().Is4() ||
			first.Location != "nbg1" || first.NetworkZone != "eu-central" || first.Holder != "" || first.AutoDelete || first.Labels["underlay.dev/adopt-service"] != "web" {
			t.Errorf("found %+v", found)
		}
	})
}

// A load balancer has the primary IPs of its creation; one with unresolved primary IPs is not
// created.
func TestCreationWithPrimaryIPs(t *testing.T) {
	inLab(t, func(t *testing.T, lab *balancerLab) {
		web, six := lab.primaryIP(t, "web", "ipv4"), lab.primaryIP(t, "six", "ipv6")
		spec := lab.spec(t, func(svc *lb.Service) {
			svc.Namespace, svc.Name = "shop", "web"
			svc.Annotations[lb.AnnotationPrimaryIPv4], svc.Annotations[lb.AnnotationPrimaryIPv6] = "web", "six"
		})
		if err := lab.Apply(t.Context(), lb.State{}, lb.Create{Spec: spec}); err == nil ||
			len(lab.sim.LoadBalancers()) > 0 {
			t.Errorf("created without having looked for primary IPs: %v", err)
		}
		found, err := lab.PrimaryIPs(t.Context(), spec.UnknownPrimaryIPs(lb.State{}))
		if err != nil {
			t.Fatal(err)
		}
		resolved, notes := spec.WithPrimaryIPs(lb.State{}, found)
		if len(notes) > 0 {
			t.Fatalf("notes %+v", notes)
		}
		if err := lab.reconcile(t.Context(), resolved); err != nil {
			t.Fatal(err)
		}
		have := lab.as(t, resolved)
		address, _ := lab.sim.PrimaryIP(web)
		network, _ := lab.sim.PrimaryIP(six)
		if have.PrimaryIPv4 != web || have.PrimaryIPv6 != six || have.IPv4.String() != address.IP ||
			!netip.MustParsePrefix(network.IP).Contains(have.IPv6) {
			t.Errorf("it has %d %s and %d %s", have.PrimaryIPv4, have.IPv4, have.PrimaryIPv6, have.IPv6)
		}
		if found, err = lab.PrimaryIPs(t.Context(), []string{"web"}); err != nil || found[0].Holder != fmt.Sprint("load balancer ", have.ID) {
			t.Errorf("found %+v, %v", found, err)
		}

		// If another resource takes it between the lookup and the creation, the creation fails with
		// a remedy.
		resolved.Name, resolved.Owner.UID = "second", "u2"
		var refused *lb.RejectedError
		err = lab.Apply(t.Context(), lb.State{}, lb.Create{Spec: resolved})
		if !errors.As(err, &refused) || refused.Code != "primary_ip_assigned" || refused.Target || !strings.Contains(err.Error(), "free it, or name another one") {
			t.Errorf("one in use: %v", err)
		}
		if err := lab.Apply(t.Context(), have, lb.Delete{}); err != nil {
			t.Fatal(err)
		}
		if left, there := lab.sim.PrimaryIP(web); !there || left.AssigneeID != nil {
			t.Errorf("after the load balancer: %+v", left)
		}
	})
}
