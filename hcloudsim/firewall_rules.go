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
		rule, err := parseRule(r)
		if err != nil {
			return nil, err
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

func parseRule(r schema.FirewallRuleRequest) (schema.FirewallRule, error) {
	out := schema.FirewallRule{
		Direction: r.Direction, Protocol: r.Protocol, Port: r.Port, Description: r.Description,
	}
	ips, others := r.SourceIPs, r.DestinationIPs
	switch r.Direction {
	case "in":
	case "out":
		ips, others = others, ips
	default:
		return out, errInvalid("rules.direction", "must be one of in, out")
	}
	if len(ips) == 0 || len(ips) > firewallPrefixesMost || len(others) > 0 {
		return out, errInvalid("rules",
			"need 1 to %d source_ips for direction in, destination_ips for direction out",
			firewallPrefixesMost)
	}
	if r.Description != nil && len(*r.Description) > 255 {
		return out, errInvalid("rules.description", "must have at most 255 characters")
	}
	var err, portErr error
	if out.SourceIPs, err = canonical(r.SourceIPs); err == nil {
		out.DestinationIPs, err = canonical(r.DestinationIPs)
	}
	ported := r.Protocol == "tcp" || r.Protocol == "udp"
	switch {
	case !ported && !slices.Contains([]string{"icmp", "esp", "gre"}, r.Protocol):
		portErr = errInvalid("rules.protocol", "must be one of tcp, udp, icmp, esp, gre")
	case ported != (r.Port != nil):
		portErr = errInvalid("rules.port", "is required for tcp and udp, and only for them")
	case ported && !isPortRange(*r.Port):
		portErr = errInvalid("rules.port", "'%s' is no port or range of ports", *r.Port)
	}
	return out, cmp.Or(err, portErr)
}

// canonical returns prefixes in the form that the API shows.
func canonical(texts []string) ([]string, error) {
	out := []string{}
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() {
			return nil, errInvalid("rules", "'%s' is no prefix with empty host bits", text)
		}
		out = append(out, p.String())
	}
	return out, nil
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
