package survey_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/table"
)

func poolLines(v table.Page) []string {
	var out []string
	for _, p := range rows(v, "pools") {
		out = append(out, fmt.Sprintf("%s %s %s %s capacity %s free %s used %s quarantined %s foreign %s excluded %s",
			p["NAME"], p["CIDR"], p["MASK"], p["STATE"], p["CAPACITY"], p["FREE"], p["USED"], p["QUARANTINED"], p["FOREIGN"], p["EXCLUDED"]))
	}
	return out
}

func TestPools(t *testing.T) {
	const active = "default-ipv4 10.244.0.0/20 /24 active capacity 16 "
	for _, c := range []struct {
		name   string
		change func(*survey.Snapshot)
		want   string
		notes  []string // texts of the notes
	}{
		{"three of sixteen", func(*survey.Snapshot) {}, active + "free 13 used 3 quarantined 0 foreign 0 excluded 0", nil},
		{
			"one in quarantine", func(s *survey.Snapshot) { release(s, "node-0002", time.Minute) },
			active + "free 13 used 2 quarantined 1 foreign 0 excluded 0", nil,
		},
		{
			"a Node with a prefix of another size", func(s *survey.Snapshot) {
				n := join(s, 9)
				delete(s.Ledger[0].Data, n.Name)
				n.Spec.PodCIDRs = []string{"10.244.12.0/22"}
			},
			active + "free 9 used 3 quarantined 0 foreign 4 excluded 0",
			[]string{"node-0009 has the podCIDR 10.244.12.0/22"},
		},
		{
			"an exclusion", func(s *survey.Snapshot) {
				s.Config = configured(t, usualFile+"exclude: [10.244.8.0/21]\n", usualFlags())
			},
			active + "free 5 used 3 quarantined 0 foreign 0 excluded 8", nil,
		},
		{
			"a subnet of the network", func(s *survey.Snapshot) {
				s.Network.Subnets = append(s.Network.Subnets, prefix("10.244.14.0/23"))
			},
			active + "free 11 used 3 quarantined 0 foreign 0 excluded 2", nil,
		},
		{
			"a Service range that only the API server knows", func(s *survey.Snapshot) {
				s.ServiceCIDRs = append(s.ServiceCIDRs, prefix("10.244.15.0/24"))
			},
			active + "free 12 used 3 quarantined 0 foreign 0 excluded 1", nil,
		},
		{
			"two Nodes with one prefix", func(s *survey.Snapshot) {
				n := join(s, 4)
				delete(s.Ledger[0].Data, n.Name)
				n.Spec.PodCIDRs = []string{podCIDR(1).String()}
			},
			active + "free 13 used 3 quarantined 0 foreign 0 excluded 0",
			[]string{"Node node-0004 has the podCIDR 10.244.1.0/24, but Node node-0001 had 10.244.1.0/24 before"},
		},
		{
			"a damaged ledger", func(s *survey.Snapshot) { s.Ledger[0].Data["node-0007"] = "uid=x nonsense" },
			active + "free 13 used 3 quarantined 0 foreign 0 excluded 0",
			[]string{`key "node-0007"`},
		},
		{
			"a Node in a shard", func(s *survey.Snapshot) { shard(s, 3, "node-0002") },
			active + "free 13 used 3 quarantined 0 foreign 0 excluded 0", nil,
		},
		{
			"in quarantine in a shard", func(s *survey.Snapshot) {
				release(s, "node-0002", time.Minute)
				shard(s, 3, "node-0002")
			},
			active + "free 13 used 2 quarantined 1 foreign 0 excluded 0", nil,
		},
		{
			"a damaged shard", func(s *survey.Snapshot) {
				shard(s, 3, "node-0002")
				s.Ledger[3].Data["node-0007"] = "uid=x nonsense"
			},
			active + "free 13 used 3 quarantined 0 foreign 0 excluded 0",
			[]string{`key "node-0007" of the ConfigMap kube-system/underlay-node-ipam-3`},
		},
		{
			"a shard that was deleted", func(s *survey.Snapshot) {
				shard(s, 3, "node-0002")
				s.Ledger[3] = nil
			},
			active + "free 13 used 3 quarantined 0 foreign 0 excluded 0",
			[]string{"the ConfigMap kube-system/underlay-node-ipam-3: it doesn't exist"},
		},
		{
			"a shard that was emptied", func(s *survey.Snapshot) {
				shard(s, 3, "node-0002")
				s.Ledger[3].Data = nil
			},
			active + "free 13 used 3 quarantined 0 foreign 0 excluded 0",
			[]string{"the ConfigMap kube-system/underlay-node-ipam-3: it has no entries"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := usual(t, 3)
			c.change(s)
			v, err := survey.PoolsOf(s)
			if err != nil {
				t.Fatal(err)
			}
			expectTexts(t, "pools", poolLines(v), c.want)
			if len(v.Notes) != len(c.notes) {
				t.Fatalf("notes %q, want %q", v.Notes, c.notes)
			}
			for i, want := range c.notes {
				if !strings.Contains(v.Notes[i], want) {
					t.Errorf("note %q, want %q", v.Notes[i], want)
				}
			}
			expectTexts(t, "room", v.Lines, "Room for "+rows(v, "pools")[0]["FREE"]+" more Nodes.")
		})
	}
}

func TestPoolsOfServersHaveNoEnd(t *testing.T) {
	s := usual(t, 0)
	s.Config = configured(t, usualFile+`pools:
  - {name: old, cidr: 10.244.0.0/24, nodeMask: 26, state: draining}
  - {name: new, cidr: 10.245.0.0/24, nodeMask: 26}
  - {name: own, source: node, nodeMask: 80}
`, config.Flags{"--configure-cloud-routes": "true"})
	v, err := survey.PoolsOf(s)
	if err != nil {
		t.Fatal(err)
	}
	pools := rows(v, "pools")
	if own := pools[2]; own["CAPACITY"] != "unlimited" || own["CIDR"] != "each server's own" || own["MASK"] != "/80" {
		t.Errorf("own: %+v", own)
	}
	if pools[0]["STATE"] != "draining" || pools[0]["FREE"] != "4" {
		t.Errorf("what drains: %+v", pools[0])
	}
	expectTexts(t, "room, of which the draining pool has none", v.Lines, "Room for 4 more Nodes.")
}

func TestPoolsThatWereRemoved(t *testing.T) {
	s := usual(t, 2)
	s.Ledger[0].Data["node-0001"] = strings.ReplaceAll(s.Ledger[0].Data["node-0001"], "10.244.1.0/24@default-ipv4", "10.50.1.0/24@before")
	s.Nodes[0].Spec.PodCIDRs = []string{"10.50.1.0/24"}
	v, err := survey.PoolsOf(s)
	if err != nil || len(v.Notes) == 0 || !strings.Contains(v.Notes[0], "10.50.1.0/24 of pool before") {
		t.Errorf("%v, %q", err, v.Notes)
	}
}

func TestPoolsWithoutSight(t *testing.T) {
	s := usual(t, 2)
	lose(s, survey.PartNetwork|survey.PartServers, "there is no token")
	v, err := survey.PoolsOf(s)
	if err != nil {
		t.Fatal(err)
	}
	expectTexts(t, "not seen", v.NotSeen, "servers, network and its routes: there is no token")
	lose(s, survey.PartConfig, "not allowed")
	if _, err := survey.PoolsOf(s); err == nil || !strings.Contains(err.Error(), "configuration can't be seen: not allowed") {
		t.Errorf("without the configuration: %v", err)
	}
}
