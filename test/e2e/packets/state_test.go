//go:build linux

package packets

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// run runs a program on a machine.
func run(t *testing.T, m *netlab.Machine, program string, args ...string) string {
	t.Helper()
	out, err := m.Namespace.Run(t.Context(), program, args...)
	if err != nil {
		t.Fatalf("on %s: %v", m.Name, err)
	}
	return out
}

// ourRoutes returns a machine's routes that an agent created, sorted.
func ourRoutes(t *testing.T, m *netlab.Machine) string {
	t.Helper()
	all := run(t, m, "ip", "-4", "route", "show", "proto", "201") + run(t, m, "ip", "-6", "route", "show", "proto", "201")
	lines := strings.Split(strings.TrimSpace(all), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func routesAre(t *testing.T, m *netlab.Machine, want string) {
	t.Helper()
	await(t, m.Name+" has its routes", func() string {
		if now := ourRoutes(t, m); now != want {
			return "they are\n" + now + "\nwant\n" + want
		}
		return ""
	})
}

// leadsTo waits until a machine's only route to a podCIDR has an address as its next hop.
func leadsTo(t *testing.T, m *netlab.Machine, dst netip.Prefix, via netip.Addr) {
	t.Helper()
	await(t, m.Name+" has a route to "+dst.String()+" via "+via.String(), func() string {
		flag := "-4"
		if dst.Addr().Is6() {
			flag = "-6"
		}
		got := strings.TrimSpace(run(t, m, "ip", flag, "route", "show", dst.String()))
		if !strings.HasPrefix(got, dst.String()+" via "+via.String()+" ") || strings.Contains(got, "\n") {
			return "it is " + got
		}
		return ""
	})
}

func podCIDRs(t *testing.T, f *netlab.Lab, node string) []netip.Prefix {
	t.Helper()
	n, err := f.Client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	prefixes, err := kube.PodCIDRs(n)
	if err != nil {
		t.Fatal(err)
	}
	return prefixes
}

// state returns all state of a machine that an agent may change.
func state(t *testing.T, m *netlab.Machine) string {
	t.Helper()
	parts := []string{
		run(t, m, "ip", "-o", "link"),
		run(t, m, "ip", "-4", "route", "show", "table", "all"),
		run(t, m, "ip", "-6", "route", "show", "table", "all"),
		run(t, m, "ip", "rule"),
		run(t, m, "ip", "neighbor", "show", "proxy"),
		run(t, m, "nft", "list", "ruleset"),
		// Counters and timestamps are no settings.
		run(t, m, "sh", "-c", "grep -rs . /proc/sys/net/ipv4 /proc/sys/net/ipv6 | grep -v 'stable_secret\\|/route/flush\\|_count:' | sort"),
	}
	entries, err := os.ReadDir(m.ConfigDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(m.ConfigDir(), e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, e.Name()+"\n"+string(content))
	}
	return strings.Join(parts, "\n")
}

// difference returns the lines that only one of two texts has.
func difference(before, after string) string {
	old, now := strings.Split(before, "\n"), strings.Split(after, "\n")
	var out []string
	for _, line := range old {
		if !slices.Contains(now, line) {
			out = append(out, "- "+line)
		}
	}
	for _, line := range now {
		if !slices.Contains(old, line) {
			out = append(out, "+ "+line)
		}
	}
	return strings.Join(out, "\n")
}

// cleanup removes the agent from the fourth machine, which an earlier step joined and which has had
// a pod.
func (r *rack) cleanup(t *testing.T) {
	four := r.f.Machine("four")
	if during := difference(r.bare, state(t, four)); !strings.Contains(during, "proto 201") || !strings.Contains(during, "table inet underlay") ||
		!strings.Contains(during, "ip_forward:1") || !strings.Contains(during, "05-underlay.conflist") {
		t.Fatalf("the agent changed less than it should have:\n%s", during)
	}
	if err := four.StopAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	said, err := four.Cleanup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if left := difference(r.bare, state(t, four)); left != "" {
		t.Errorf("left behind:\n%s\ncleanup said:\n%s", left, said)
	}
	if again, err := four.Cleanup(t.Context()); err != nil || again != "nothing of underlay is left on this node\n" {
		t.Errorf("a second cleanup: %v, %s", err, again)
	}
}
