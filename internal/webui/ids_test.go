package webui_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/webui"
	"github.com/underlay-ccm/underlay/test/testenv/snapshots"
)

// quarantine adds a holding of a Node that is gone to what the ledger has under its name.
func quarantine(s *survey.Snapshot, name, uid string, number int) {
	line := fmt.Sprintf("uid=%s id=hcloud://9%d 10.250.%d.0/24@default-ipv4 released=%s", uid, number, number, snapshots.Now().Add(-time.Minute).Format(time.RFC3339))
	s.Ledger.Data[name] = strings.TrimPrefix(s.Ledger.Data[name]+"\n"+line, "\n")
}

// both gives a Service of Eventful in the namespace shop an address that nodes hold, and that the
// ledger still has, beside its load balancer.
func both(t *testing.T, s *survey.Snapshot, name string) {
	t.Helper()
	addressed, err := snapshots.Addressed(3)
	if err != nil {
		t.Fatal(err)
	}
	s.Config.Addresses, s.AddressLedger = addressed.Config.Addresses, addressed.AddressLedger
	data := addressed.AddressLedger.Data[survey.AddressLedgerKey]
	s.AddressLedger.Data[survey.AddressLedgerKey] = strings.ReplaceAll(data, `"name":"dns"`, fmt.Sprintf(`"name":%q`, name))
}

// twice are the IDs that more than one thing of a View has.
func twice(v webui.View) (ids []string) {
	seen := map[string]int{}
	for _, g := range v.Groups {
		seen[g.ID]++
		for _, m := range g.Machines {
			seen[m.ID]++
		}
	}
	for _, s := range v.Services {
		seen[s.ID]++
	}
	for _, r := range v.Table.Routes {
		seen[r.ID]++
	}
	for id, count := range seen {
		if count > 1 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Whatever a look shows, the page tells its things apart by their IDs.
func TestNoIDIsThereTwice(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		count := 3 + random.IntN(30)
		s := eventful(t, count)
		names := []string{"worker-gone", "worker-1", "worker-2", "nobody"}
		for i := range random.IntN(6) {
			quarantine(s, names[random.IntN(len(names))], fmt.Sprint("uid-", i), i)
		}
		if name := []string{"api", "web", ""}[random.IntN(3)]; name != "" {
			both(t, s, name)
		}
		for range random.IntN(4) {
			a, b := s.Nodes[random.IntN(count)], s.Nodes[random.IntN(count)]
			a.Spec.PodCIDR, a.Spec.PodCIDRs = b.Spec.PodCIDR, b.Spec.PodCIDRs
		}
		for range random.IntN(4) {
			i := random.IntN(len(s.Network.Routes))
			s.Network.Routes = slices.Delete(s.Network.Routes, i, i+1)
		}
		if random.IntN(2) == 0 {
			s.Servers = s.Servers[:random.IntN(len(s.Servers))]
		}
		if random.IntN(2) == 0 {
			again := s.LoadBalancers[random.IntN(len(s.LoadBalancers))]
			again.ID += 100
			s.LoadBalancers = append(s.LoadBalancers, again)
		}
		if ids := twice(webui.ViewOf(s)); len(ids) > 0 {
			t.Errorf("seed %d, %d machines: %q", seed, count, ids)
		}
	}
}

// Of a Service with a load balancer and an address that nodes hold there is one row, with
// both.
func TestAServiceWithALoadBalancerAndAnAddress(t *testing.T) {
	s := eventful(t, 3)
	both(t, s, "api")
	var rows []webui.Service
	for _, row := range webui.ViewOf(s).Services {
		if row.Name == "shop/api" {
			rows = append(rows, row)
		}
	}
	if len(rows) != 1 {
		t.Fatalf("%d rows: %+v", len(rows), rows)
	}
	got := rows[0]
	if got.Tone != webui.Bad || got.State != "not held" || !slices.Equal(got.Addresses, []string{"192.0.2.8", "10.0.254.189", "192.0.2.18"}) || len(got.Ports) != 1 {
		t.Errorf("%+v", got)
	}
	if !strings.Contains(got.By, "load balancer auidapi (701)") || !strings.HasSuffix(got.By, "; address of pool segment, layer2") {
		t.Errorf("by %q", got.By)
	}
	var targets []string
	for _, target := range got.Targets {
		targets = append(targets, fmt.Sprintf("%s %s %s", target.ID, target.Tone, target.State))
	}
	if len(targets) != 4 || targets[3] != "node/worker-2 bad is to hold 192.0.2.18" {
		t.Errorf("targets %q", targets)
	}
}

// A finding about a Node leads to the Node, and not to a former one of its name.
func TestFindingsLeadToTheNodeThatThereIs(t *testing.T) {
	s := eventful(t, 3)
	quarantine(s, "worker-2", "uid-former", 1)
	s.Node("worker-2").Status.Conditions[2].Status = "False"
	led := 0
	for _, f := range webui.ViewOf(s).Findings {
		if f.Object == "Node/worker-2" {
			led++
			if f.ID != "node/worker-2" {
				t.Errorf("%s leads to %q", f.Check, f.ID)
			}
		}
	}
	if led == 0 {
		t.Error("no finding is about worker-2")
	}
}
