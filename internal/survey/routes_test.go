package survey_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/table"
	"github.com/underlay-ccm/underlay/routes"
)

func routeLines(v table.Page) []string {
	var out []string
	for _, r := range rows(v, "routes") {
		out = append(out, fmt.Sprintf("%s via %s %s (%s) %s", r["DESTINATION"], r["GATEWAY"], r["NODE"], r["SERVER"], r["CLASS"]))
	}
	for _, d := range rows(v, "drift") {
		if d["DRIFT"] == "missing" {
			out = append(out, fmt.Sprintf("- %s via %s %s: %s", d["DESTINATION"], d["GATEWAY"], d["NODE"], d["WHY"]))
		} else {
			out = append(out, fmt.Sprintf("+ %s via %s: %s", d["DESTINATION"], d["GATEWAY"], d["WHY"]))
		}
	}
	return out
}

func TestRoutes(t *testing.T) {
	one := "10.244.1.0/24 via 10.0.0.2 node-0001 (node-0001) ours"
	two := "10.244.2.0/24 via 10.0.0.3 node-0002 (node-0002) ours"
	add := func(s *survey.Snapshot, dst, via string) {
		s.Network.Routes = append(s.Network.Routes, routes.Route{Dst: prefix(dst), Via: addr(via)})
	}
	for _, c := range []struct {
		name   string
		change func(*survey.Snapshot)
		want   []string
		budget string // limit, used, reserve, free, refused
	}{
		{"healthy", func(*survey.Snapshot) {}, []string{one, two}, "100 2 0 98 0"},
		{
			"others' routes", func(s *survey.Snapshot) {
				add(s, "10.66.0.0/16", "10.0.9.9")
				add(s, "10.244.9.0/24", "10.0.8.8")
				s.Servers = append(s.Servers, cloud.Machine{ID: 900, Name: "stranger", PrivateIP: addr("10.0.8.8")})
			},
			[]string{"10.66.0.0/16 via 10.0.9.9  () foreign", one, two, "10.244.9.0/24 via 10.0.8.8  (stranger) ambiguous"},
			"100 4 0 96 0",
		},
		{
			"a route that nobody recorded, to an address that no server has", func(s *survey.Snapshot) { add(s, "10.244.9.0/24", "10.0.8.8") },
			[]string{one, two, "10.244.9.0/24 via 10.0.8.8  () ambiguous"},
			"100 3 0 97 0",
		},
		{
			"a Node that is gone, and its recorded route to a server that took the address over", func(s *survey.Snapshot) {
				release(s, "node-0002", time.Minute)
				s.Servers[1].ID, s.Servers[1].Name = 900, "stranger"
			},
			[]string{
				one, "10.244.2.0/24 via 10.0.0.3 node-0002 (gone) (stranger) stale",
				"+ 10.244.2.0/24 via 10.0.0.3: no Node wants it, and it will be deleted",
			},
			"100 2 0 98 0",
		},
		{
			"a Node that is gone, and the route of its server", func(s *survey.Snapshot) { release(s, "node-0002", time.Minute) },
			[]string{
				one, "10.244.2.0/24 via 10.0.0.3 node-0002 (gone) (node-0002) stale",
				"+ 10.244.2.0/24 via 10.0.0.3: no Node wants it, and it will be deleted",
			},
			"100 2 0 98 0",
		},
		{
			"an earlier gateway", func(s *survey.Snapshot) { s.Servers[1].PrivateIP = addr("10.0.0.77") },
			[]string{
				one, "10.244.2.0/24 via 10.0.0.3 node-0002 () stale",
				"- 10.244.2.0/24 via 10.0.0.77 node-0002: the route leads to 10.0.0.3, an earlier gateway, and will be replaced",
			},
			"100 2 0 98 0",
		},
		{
			"no room", func(s *survey.Snapshot) {
				s.Config.Routes.Limit, s.Config.Routes.Reserve = 3, 1
				join(s, 3)
				s.Network.Routes = s.Network.Routes[:2]
			},
			[]string{one, two, "- 10.244.3.0/24 via 10.0.0.4 node-0003: no room in the network's route table for podCIDR 10.244.3.0/24; remove routes or nodes, or have the limit raised and set routes.limit"},
			"3 2 1 0 1",
		},
		{
			"a server that is not attached keeps its route", func(s *survey.Snapshot) { s.Servers[1].PrivateIP = netip.Addr{} },
			[]string{
				one, "10.244.2.0/24 via 10.0.0.3 node-0002 () stale",
			},
			"100 2 0 98 0",
		},
		{
			"a server that is gone, and its Node not yet", func(s *survey.Snapshot) { s.Servers = s.Servers[:1] },
			[]string{
				one, "10.244.2.0/24 via 10.0.0.3 node-0002 () stale",
			},
			"100 2 0 98 0",
		},
		{
			"a server that is gone, and its address another Node's", func(s *survey.Snapshot) {
				s.Servers = s.Servers[:1]
				s.Servers[0].AliasIPs = []netip.Addr{addr("10.0.0.3")}
			},
			[]string{
				one, "10.244.2.0/24 via 10.0.0.3 node-0002 (node-0001) ours",
			},
			"100 2 0 98 0",
		},
		{
			"a server that is gone, and its route too", func(s *survey.Snapshot) { s.Servers, s.Network.Routes = s.Servers[:1], s.Network.Routes[:1] },
			[]string{one},
			"100 1 0 99 0",
		},
		{
			"a dedicated server, whose address the cloud doesn't know", func(s *survey.Snapshot) {
				s.Servers, s.Nodes[1].Spec.ProviderID = s.Servers[:1], "hrobot://4711"
			},
			[]string{one, "10.244.2.0/24 via 10.0.0.3 node-0002 () ours"},
			"100 2 0 98 0",
		},
		{
			"a server that is not attached and never had one", func(s *survey.Snapshot) {
				s.Servers[1].PrivateIP = netip.Addr{}
				s.Network.Routes = s.Network.Routes[:1]
			},
			[]string{one, "- 10.244.2.0/24 via  node-0002: server hcloud://102 is not attached to the network; attach it"},
			"100 1 0 99 0",
		},
		{
			"routes are switched off", func(s *survey.Snapshot) {
				flags := usualFlags()
				flags["--configure-cloud-routes"] = "false"
				s.Config = configured(t, usualFile, flags)
				s.Network.Routes = s.Network.Routes[:1]
				add(s, "10.244.9.0/24", "10.0.9.9")
			},
			[]string{one, "10.244.9.0/24 via 10.0.9.9  () ambiguous"},
			"100 2 0 98 0",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := usual(t, 2)
			c.change(s)
			v, err := survey.RoutesOf(s)
			if err != nil {
				t.Fatal(err)
			}
			expectTexts(t, "routes", routeLines(v), c.want...)
			b := rows(v, "budget")[0]
			if got := strings.Join([]string{b["LIMIT"], b["USED"], b["RESERVE"], b["FREE"], b["REFUSED"]}, " "); got != c.budget {
				t.Errorf("budget %s, want %s", got, c.budget)
			}
		})
	}
}

func TestRoutesWithoutATable(t *testing.T) {
	for name, c := range map[string]struct {
		file, want string
	}{
		"metal":      {"apiVersion: underlay.dev/v1alpha1\nkind: CloudConfig\nprovider: metal\n", "the provider is metal"},
		"no network": {"apiVersion: underlay.dev/v1alpha1\nkind: CloudConfig\n", "no network is configured"},
	} {
		s := usual(t, 1)
		flags := usualFlags()
		flags["--configure-cloud-routes"] = "false"
		s.Config = configured(t, c.file, flags)
		lose(s, survey.Cloud, "not asked")
		v, err := survey.RoutesOf(s)
		if err != nil || len(v.Notes) != 1 || !strings.Contains(v.Notes[0], c.want) || len(v.Tables) > 0 {
			t.Errorf("%s: %v, %+v", name, err, v)
		}
	}
}

func TestRoutesWithoutSight(t *testing.T) {
	for _, part := range []survey.Part{
		survey.PartConfig, survey.PartNodes, survey.PartServers, survey.PartNetwork,
	} {
		s := usual(t, 1)
		lose(s, part, "because")
		if part == survey.PartConfig {
			s.Config = config.Config{}
		}
		if _, err := survey.RoutesOf(s); err == nil || !strings.Contains(err.Error(), part.String()+" can't be seen: because") {
			t.Errorf("without %s: %v", part, err)
		}
	}
	// The ledger is useful but not required: without it, the route that it would explain has no
	// owner.
	s := usual(t, 2)
	release(s, "node-0002", time.Minute)
	s.Servers = slices.Delete(s.Servers, 1, 2)
	lose(s, survey.PartLedger, "not allowed")
	v, err := survey.RoutesOf(s)
	if all := rows(v, "routes"); err != nil || all[1]["CLASS"] != survey.Stale || all[1]["NODE"] != "" {
		t.Errorf("%v, %+v", err, all)
	}
	expectTexts(t, "not seen", v.NotSeen, "ledger of podCIDRs: not allowed")
}
