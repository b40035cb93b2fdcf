package connectivity

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, t := range texts {
		all = append(all, netip.MustParseAddr(t))
	}
	return all
}

func TestPlan(t *testing.T) {
	world := World{
		Nodes: []Node{
			{Name: "a", Addresses: addrs("192.0.2.1"), Pods: addrs("10.244.0.2", "fd00:0:0:1::2")},
			{Name: "b", Addresses: addrs("192.0.2.2", "2001:db8::2"), Pods: addrs("10.244.1.2", "fd00:0:0:2::2")},
		},
		ClusterIPs: addrs("10.96.0.9"), NodePort: 30080, HealthPort: 31000,
		Targets: []netip.AddrPort{netip.MustParseAddrPort("203.0.113.7:443")},
	}
	for _, c := range []struct {
		name  string
		world World
		want  string
	}{
		{"both families, and a Service of one", world, `
pod mtu,tcp,udp b 10.244.1.2:8080
pod mtu,tcp,udp b [fd00:0:0:2::2]:8080
pod mtu,tcp,udp a 10.244.0.2:8080
pod mtu,tcp,udp a [fd00:0:0:1::2]:8080
service tcp,udp  10.96.0.9:8080
node-port tcp a 192.0.2.1:30080
node-port tcp b 192.0.2.2:30080
health-check http a 192.0.2.1:31000
health-check http b 192.0.2.2:31000
outside dial  203.0.113.7:443`},
		{"no Service", World{Nodes: world.Nodes[:1]}, `
pod mtu,tcp,udp a 10.244.0.2:8080
pod mtu,tcp,udp a [fd00:0:0:1::2]:8080`},
		{"nothing", World{}, ""},
	} {
		kinds := map[string][]string{}
		for _, trial := range Plan("a", c.world) {
			if trial.From != "a" {
				t.Errorf("%s: %+v is not from the node that asks", c.name, trial)
			}
			line := fmt.Sprintf("%s %%s %s %s", trial.Path, trial.To, trial.At)
			kinds[line] = append(kinds[line], string(trial.Kind))
		}
		var got []string
		for line, all := range kinds {
			slices.Sort(all)
			got = append(got, fmt.Sprintf(line, strings.Join(all, ",")))
		}
		want := strings.Split(strings.TrimPrefix(c.want, "\n"), "\n")
		want = slices.DeleteFunc(want, func(s string) bool { return s == "" })
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}
