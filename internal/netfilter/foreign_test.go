//go:build linux

package netfilter

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// Docker and ufw set the policy of iptables' FORWARD to drop. Any chain that drops forwarded
// packets of a family of pods is reported, whatever the table's name.
func TestChainsOfOthersThatDropForwardedPackets(t *testing.T) {
	space := netns.New(t)
	var warnings []string
	look := func(want Forwarding) string {
		t.Helper()
		space.Do(func() {
			var err error
			if _, warnings, err = (Foreign{}).Apply(t.Context(), want); err != nil {
				t.Error(err)
			}
		})
		var chains []string
		for _, line := range warnings {
			name, _, _ := strings.Cut(strings.TrimPrefix(line, "the chain "), ", which")
			chains = append(chains, name)
		}
		return strings.Join(chains, "; ")
	}
	dual := Forwarding{IPv4: true, IPv6: true}
	if got := look(dual); got != "" {
		t.Errorf("without tables: %s", got)
	}
	var tables strings.Builder
	for _, c := range [][4]string{
		{"ip filter", "INPUT", "input", "drop"},
		{"ip filter", "FORWARD", "forward", "drop"},
		{"ip6 filter", "FORWARD", "forward", "drop"},
		{"inet firewalld", "forward", "forward", "accept"},
		{"inet mine", "forward", "forward", "drop"},
		{"inet underlay", "forward", "forward", "drop"},
		{"bridge filter", "forward", "forward", "drop"},
	} {
		fmt.Fprintf(&tables, "table %s {\n\tchain %s {\n\t\ttype filter hook %s priority 0; policy %s;\n\t}\n}\n", c[0], c[1], c[2], c[3])
	}
	file := filepath.Join(t.TempDir(), "tables.nft")
	if err := os.WriteFile(file, []byte(tables.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	space.Run("nft", "-f", file)
	const ip4, ip6, inet = "FORWARD of nftables table ip filter", "FORWARD of nftables table ip6 filter", "forward of nftables table inet mine"
	for want, chains := range map[Forwarding][]string{
		dual: {ip4, ip6, inet}, {IPv4: true}: {ip4, inet}, {IPv6: true}: {ip6, inet}, {}: nil,
	} {
		if got := look(want); got != strings.Join(chains, "; ") {
			t.Errorf("%+v: %q, want %q", want, got, chains)
		}
	}
	if look(dual); !slices.ContainsFunc(warnings, func(line string) bool { return strings.Contains(line, "set its policy to accept") }) {
		t.Errorf("no remedy in %q", warnings)
	}
	space.Run("nft", "delete table ip filter; delete table ip6 filter; delete table inet mine")
	if got := look(dual); got != "" {
		t.Errorf("after they are gone: %s", got)
	}
}
