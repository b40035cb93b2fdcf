package hcloudsim

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strconv"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const (
	firewallRulesMost    = 50
	firewallPrefixesMost = 100 // in a rule
)

func parseRules(requested []schema.FirewallRuleRequest) ([]schema.FirewallRule, error) {
	if len(requested) > firewallRulesMost {
		return nil, errInvalid("rules", "must be at most %d", firewallRulesMost)
	}
	rules := []schema.FirewallRule{}
	for _, r := range requested {
		rule := schema.FirewallRule(r)
		if err := parseRule(&rule); err != nil {
			return nil, err
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// parseRule validates a rule and makes its prefixes canonical.
func parseRule(r *schema.FirewallRule) error {
	ported := r.Protocol == "tcp" || r.Protocol == "udp"
	ips, others := &r.SourceIPs, &r.DestinationIPs
	if r.Direction == "out" {
		ips, others = others, ips
	}
	switch {
	case r.Direction != "in" && r.Direction != "out":
		return errInvalid("rules.direction", "must be one of in, out")
	case len(*ips) == 0 || len(*ips) > firewallPrefixesMost || len(*others) > 0:
		return errInvalid("rules",
			"need 1 to %d source_ips for direction in, destination_ips for direction out",
			firewallPrefixesMost)
	case r.Description != nil && len(*r.Description) > 255:
		return errInvalid("rules.description", "must have at most 255 characters")
	case !ported && !slices.Contains([]string{"icmp", "esp", "gre"}, r.Protocol):
		return errInvalid("rules.protocol", "must be one of tcp, udp, icmp, esp, gre")
	case ported != (r.Port != nil):
		return errInvalid("rules.port", "is required for tcp and udp, and only for them")
	case ported && !isPortRange(*r.Port):
		return errInvalid("rules.port", "'%s' is no port or range of ports", *r.Port)
	}
	shown := []string{}
	for _, text := range *ips {
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() {
			return errInvalid("rules", "'%s' is no prefix with empty host bits", text)
		}
		shown = append(shown, p.String())
	}
	*ips, *others = shown, []string{}
	return nil
}

var portRange = regexp.MustCompile(`^(\d{1,5})(?:-(\d{1,5}))?$`)

func isPortRange(text string) bool {
	match := portRange.FindStringSubmatch(text)
	if match == nil {
		return false
	}
	first, _ := strconv.Atoi(match[1])
	last, _ := strconv.Atoi(cmp.Or(match[2], match[1]))
	return first >= 1 && first <= last && last <= 65535
}
