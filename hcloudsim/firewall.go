package hcloudsim

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	kindFirewall = "firewall"

	firewallsPerServer = 5
)

// firewall is applied to servers, directly or by a label selector. The simulator has no packets:
// data planes are not given the rules.
type firewall struct {
	base
	rules   []schema.FirewallRule
	applied []*firewallTarget
}

// firewallTarget is a server or, if the ID is 0, all servers that a label selector matches.
type firewallTarget struct {
	server   int64
	selector string
}

func (f *firewall) ref() ref { return ref{kindFirewall, f.id} }

func (f *firewall) isOn(t firewallTarget) bool {
	return slices.ContainsFunc(f.applied, func(on *firewallTarget) bool { return *on == t })
}

func (f *firewall) drop(t firewallTarget) {
	f.applied = slices.DeleteFunc(f.applied, func(on *firewallTarget) bool { return *on == t })
}

// selects reports whether a label selector matches a server with a public interface.
func (t firewallTarget) selects(s *server) bool {
	selector, err := labels.Parse(t.selector)
	return t.server == 0 && err == nil && selector.Matches(labels.Set(s.labels)) &&
		len(s.addresses.all()) > 0
}

// firewallsOn returns the firewalls of a server's public interface.
func (p *project) firewallsOn(s *server) []schema.ServerFirewall {
	out := []schema.ServerFirewall{}
	for _, f := range p.firewalls.rows {
		on := first(f.applied, func(t *firewallTarget) bool { return t.server == s.id || t.selects(s) })
		switch {
		case on == nil:
		case p.creating[on]:
			out = append(out, schema.ServerFirewall{ID: f.id, Status: "pending"})
		default:
			out = append(out, schema.ServerFirewall{ID: f.id, Status: "applied"})
		}
	}
	return out
}

func (p *project) renderFirewall(f *firewall) schema.Firewall {
	return schema.Firewall{
		ID: f.id, Name: f.name, Labels: cloneLabels(f.labels), Created: f.created, Rules: f.rules,
		AppliedTo: rendered(shown(p, f.applied), func(t *firewallTarget) schema.FirewallResource {
			out := t.resource()
			if t.server == 0 {
				servers := ids(&p.servers, t.selects)
				out.AppliedToResources = rendered(servers, func(id int64) schema.FirewallResource {
					return firewallTarget{server: id}.resource()
				})
			}
			return out
		}),
	}
}

func (t firewallTarget) resource() schema.FirewallResource {
	if t.server != 0 {
		server := &schema.FirewallResourceServer{ID: t.server}
		return schema.FirewallResource{Type: targetServer, Server: server}
	}
	selector := &schema.FirewallResourceLabelSelector{Selector: t.selector}
	return schema.FirewallResource{Type: targetSelector, LabelSelector: selector}
}

func firewallKind() kind[*firewall] {
	return kind[*firewall]{
		name: kindFirewall, plural: "firewalls",
		rows: func(p *project) *table[*firewall] { return &p.firewalls },
		body: func(p *project, f *firewall) any { return p.renderFirewall(f) },
		mayDelete: func(_ *project, f *firewall) error {
			if len(f.applied) == 0 {
				return nil
			}
			return errRefused("resource_in_use", "firewall %d is still applied to a resource", f.id)
		},
	}
}

func firewallOperations() []operation {
	k := firewallKind()
	return k.operations(create(k, (*call).createFirewall),
		onMany(k, "apply_to_resources", (*call).applyFirewall),
		onMany(k, "remove_from_resources", (*call).removeFirewall),
		onMany(k, "set_rules", (*call).setFirewallRules),
	)
}

func (c *call) createFirewall(req schema.FirewallCreateRequest) (*firewall, map[string]any, error) {
	b, err := firewallKind().new(c.project, req.Name, req.Labels)
	if err != nil {
		return nil, nil, err
	}
	f := &firewall{}
	if f.rules, err = parseRules(req.Rules); err != nil {
		return nil, nil, err
	}
	targets, err := c.firewallTargets("apply_to", http.StatusUnprocessableEntity, req.ApplyTo)
	if err := cmp.Or(err, c.mayApply(f, targets)); err != nil {
		return nil, nil, err
	}
	f.base = c.newBase(b)
	c.firewalls.add(f)
	return f, map[string]any{"actions": c.beginAll(f.applying(targets))}, nil
}

// firewallTargets parses the targets of a request. The status of a missing one depends on the
// operation.
func (c *call) firewallTargets(
	field string, missing int, resources []schema.FirewallResource,
) (targets []firewallTarget, err error) {
	for _, r := range resources {
		var t firewallTarget
		switch {
		case r.Type == targetServer && r.Server != nil:
			t.server = r.Server.ID
			if _, there := c.servers.get(t.server); !there {
				return nil, newError(missing, "firewall_resource_not_found",
					"server with ID '%d' not found", t.server)
			}
		case r.Type == targetSelector && r.LabelSelector != nil:
			t.selector = r.LabelSelector.Selector
			if _, err := labels.Parse(t.selector); err != nil || t.selector == "" {
				return nil, errInvalid(field, "'%s' is no label selector", t.selector)
			}
		default:
			return nil, errInvalid(field,
				"must be of type server or label_selector, with that resource")
		}
		if slices.Contains(targets, t) {
			return nil, errRefused("server_already_added", "a resource is in the request twice")
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// mayApply returns an error if a firewall can't be applied to one of the targets.
func (p *project) mayApply(f *firewall, targets []firewallTarget) error {
	for _, t := range targets {
		if f.isOn(t) {
			return errRefused("firewall_already_applied",
				"the firewall is already applied to the resource")
		}
		if s, isServer := p.servers.get(t.server); isServer {
			if err := mayFilter(s, len(p.firewallsOn(s))); err != nil {
				return err
			}
		}
	}
	return nil
}

// mayFilter returns an error if a server that has others can't have another firewall.
func mayFilter(s *server, others int) error {
	if len(s.addresses.all()) == 0 {
		return errRefused("private_net_only_server", "the server has no public interface")
	}
	if others >= firewallsPerServer {
		return errLimit("server_firewall_limit", firewallsPerServer)
	}
	return nil
}

// changing is an action of a firewall about a target.
func (f *firewall) changing(command string, t firewallTarget) change {
	c := change{command: command, about: []ref{f.ref()}, holds: []ref{f.ref()}}
	if t.server != 0 {
		c.about = []ref{{kindServer, t.server}, f.ref()}
	}
	return c
}

// applying adds targets, and returns the actions that apply the firewall to them.
func (f *firewall) applying(targets []firewallTarget) (changes []change) {
	for _, t := range targets {
		c := f.changing("apply_firewall", t)
		c.adds, c.undo = &t, func() { f.drop(t) }
		f.applied = append(f.applied, &t)
		changes = append(changes, c)
	}
	return changes
}

func (c *call) applyFirewall(
	f *firewall, req schema.FirewallActionApplyToResourcesRequest,
) ([]change, error) {
	targets, err := c.firewallTargets("apply_to", http.StatusNotFound, req.ApplyTo)
	if err := cmp.Or(err, c.mayApply(f, targets)); err != nil {
		return nil, err
	}
	return f.applying(targets), nil
}

// removeFirewall does not refuse targets that the firewall is not applied to, since August 2025.
func (c *call) removeFirewall(
	f *firewall, req schema.FirewallActionRemoveFromResourcesRequest,
) (changes []change, err error) {
	targets, err := c.firewallTargets("remove_from", http.StatusNotFound, req.RemoveFrom)
	if err != nil {
		return nil, err
	}
	for _, t := range targets {
		s, _ := c.servers.get(t.server)
		selected := func(on *firewallTarget) bool { return s != nil && on.selects(s) }
		if !f.isOn(t) && slices.ContainsFunc(f.applied, selected) {
			return nil, errRefused("firewall_managed_by_label_selector",
				"the firewall is applied to server %d by a label selector", t.server)
		}
		removal := f.changing("remove_firewall", t)
		removal.finish = func() { f.drop(t) }
		changes = append(changes, removal)
	}
	return changes, nil
}

// setFirewallRules also has an action for each target, as in the API.
func (c *call) setFirewallRules(
	f *firewall, req schema.FirewallActionSetRulesRequest,
) ([]change, error) {
	rules, err := parseRules(req.Rules)
	if err != nil {
		return nil, err
	}
	setting := f.changing("set_firewall_rules", firewallTarget{})
	setting.finish = func() { f.rules = rules }
	changes := []change{setting}
	for _, t := range f.applied {
		changes = append(changes, f.changing("apply_firewall", *t))
	}
	return changes, nil
}
