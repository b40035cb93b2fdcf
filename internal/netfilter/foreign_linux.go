package netfilter

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
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
func (Foreign) Apply(
	ctx context.Context, want Forwarding,
) (changed, warnings []string, err error) {
	if want == (Forwarding{}) {
		return nil, nil, nil
	}
	text, err := output(ctx, "--json", "list", "chains")
	if err == nil {
		warnings, err = droppingChains(text, want)
	}
	if err != nil { // not an error, since the node works without the check
		warnings = []string{
			fmt.Sprintf("not checked whether another program drops forwarded packets: %v", err),
		}
	}
	return nil, warnings, nil
}

// Cleanup does nothing.
func (Foreign) Cleanup(context.Context) ([]string, error) { return nil, nil }

// droppingChains parses the output of nft --json list chains.
func droppingChains(text string, want Forwarding) (warnings []string, err error) {
	var listed struct {
		Objects []struct {
			Chain struct{ Family, Table, Name, Hook, Policy string }
		} `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(text), &listed); err != nil {
		return nil, err
	}
	families := map[string]bool{"ip": want.IPv4, "ip6": want.IPv6, "inet": true}
	for _, o := range listed.Objects {
		c := o.Chain
		if c.Hook != "forward" || c.Policy != "drop" || !families[c.Family] ||
			c.Family == "inet" && c.Table == tableName {
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
