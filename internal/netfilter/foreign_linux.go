package netfilter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"

	"sigs.k8s.io/knftables"
)

// Foreign checks tables of other programs, whose chains can drop packets that our table accepts:
// a packet has to be accepted by every base chain of a hook. It changes nothing. It does not
// check rules of legacy iptables, which are not in nftables.
type Foreign struct{}

// Forwarding selects the families of packets that a node forwards.
type Forwarding struct{ IPv4, IPv6 bool }

// Plan returns the same warnings as Apply.
func (f Foreign) Plan(
	ctx context.Context, want Forwarding,
) (changes, warnings []string, err error) {
	return f.Apply(ctx, want)
}

// Apply returns a warning for each base chain of other tables that drops forwarded packets.
func (f Foreign) Apply(
	ctx context.Context, want Forwarding,
) (changed, warnings []string, err error) {
	if want == (Forwarding{}) {
		return nil, nil, nil
	}
	dropping, err := f.dropping(ctx, want)
	if err != nil { // not an error, since the node works without the check
		return nil,
			[]string{fmt.Sprintf("not checked whether another program drops forwarded packets: %v", err)},
			nil
	}
	return nil, dropping, nil
}

func (Foreign) dropping(ctx context.Context, want Forwarding) ([]string, error) {
	text, err := exec.CommandContext(ctx, "nft", "--json", "list", "chains").Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil,
			fmt.Errorf("listing the chains of nftables: %w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return nil, fmt.Errorf("listing the chains of nftables: %w", err)
	}
	return droppingChains(text, want)
}

// Cleanup does nothing.
func (Foreign) Cleanup(context.Context) ([]string, error) { return nil, nil }

// droppingChains parses the output of nft --json list chains.
func droppingChains(text []byte, want Forwarding) (warnings []string, err error) {
	var listed struct {
		Objects []struct {
			Chain *struct{ Family, Table, Name, Hook, Policy string }
		} `json:"nftables"`
	}
	if err := json.Unmarshal(text, &listed); err != nil {
		return nil, fmt.Errorf("reading the chains of nftables: %w", err)
	}
	families := map[knftables.Family]bool{
		knftables.IPv4Family: want.IPv4, knftables.IPv6Family: want.IPv6,
		knftables.InetFamily: want.IPv4 || want.IPv6,
	}
	for _, o := range listed.Objects {
		c := o.Chain
		if c == nil || c.Hook != "forward" || c.Policy != "drop" ||
			!families[knftables.Family(c.Family)] {
			continue
		}
		if c.Family == string(knftables.InetFamily) && c.Table == tableName {
			continue
		}
		warnings = append(warnings, fmt.Sprintf(
			"the chain %s of nftables table %s %s, which is another program's, drops forwarded packets that none of its rules accepts, pods' too; "+
				"have it accept the pods' ranges, or set its policy to accept (Docker: ip-forward-no-drop, ufw: DEFAULT_FORWARD_POLICY)",
			c.Name, c.Family, c.Table))
	}
	slices.Sort(warnings)
	return warnings, nil
}
