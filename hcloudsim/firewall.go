package hcloudsim

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
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
	applied []*application
}

// firewallTarget is a server or, if the ID is 0, all servers that a label selector matches.
type firewallTarget struct {
	server   int64
	selector string
}

// application is the use of a firewall by a target; an action is still adding a pending one.
type application struct {
	firewallTarget
	pending bool
}

func (f *firewall) ref() ref { return ref{kindFirewall, f.id} }

func (f *firewall) on(t firewallTarget) *application {
	for _, a := range f.applied {
		if a.firewallTarget == t {
			return a
		}
	}
	return nil
}

func (f *firewall) drop(t firewallTarget) {
	f.applied = slices.DeleteFunc(f.applied, func(a *application) bool {
		return a.firewallTarget == t
	})
}

// selects reports whether a label selector matches a server with a public interface.
func (t firewallTarget) selects(s *server) bool {
	sel, err := parseSelector(t.selector)
	return t.server == 0 && err == nil && sel.matches(s.labels) && len(s.addresses.all()) > 0
}

// firewallsOn returns the firewalls of a server's public interface.
func (p *project) firewallsOn(s *server) []schema.ServerFirewall {
	out := []schema.ServerFirewall{}
	for _, f := range p.firewalls.rows {
		for _, a := range f.applied {
			if a.server == s.id || a.selects(s) {
				status := "applied"
				if a.pending {
					status = "pending"
				}
				out = append(out, schema.ServerFirewall{ID: f.id, Status: status})
				break
			}
		}
	}
	return out
}

func (p *project) renderFirewall(f *firewall) schema.Firewall {
	out := schema.Firewall{
		ID: f.id, Name: f.name, Labels: cloneLabels(f.labels), Created: f.created,
		Rules: f.rules, AppliedTo: []schema.FirewallResource{},
	}
	for _, a := range f.applied {
		if a.pending {
			continue
		}
		shown := a.resource()
		if a.server == 0 {
			shown.AppliedToResources = []schema.FirewallResource{}
			for _, s := range p.servers.rows {
				if a.selects(s) {
					one := firewallTarget{server: s.id}.resource()
					shown.AppliedToResources = append(shown.AppliedToResources, one)
				}
			}
		}
		out.AppliedTo = append(out.AppliedTo, shown)
	}
	return out
}

func (t firewallTarget) resource() schema.FirewallResource {
	if t.server != 0 {
		server := &schema.FirewallResourceServer{ID: t.server}
		return schema.FirewallResource{Type: targetServer, Server: server}
	}
	selector := &schema.FirewallResourceLabelSelector{Selector: t.selector}
	return schema.FirewallResource{Type: targetSelector, LabelSelector: selector}
}

func firewallOperations() []operation {
	k := kind[*firewall]{
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
	return k.operations((*call).createFirewall,
		onMany(k, "apply_to_resources", (*call).applyFirewall),
		onMany(k, "remove_from_resources", (*call).removeFirewall),
		onMany(k, "set_rules", (*call).setFirewallRules),
	)
}

func (c *call) createFirewall() (reply, error) {
	req, err := decode[schema.FirewallCreateRequest](c)
	if err != nil {
		return reply{}, err
	}
	b, err := newNamed(&c.firewalls, checkName, req.Name, req.Labels)
	if err != nil {
		return reply{}, err
	}
	f := &firewall{base: b}
	if f.rules, err = parseRules(req.Rules); err != nil {
		return reply{}, err
	}
	targets, err := c.firewallTargets("apply_to", http.StatusUnprocessableEntity, req.ApplyTo)
	if err != nil {
		return reply{}, err
	}
	if err := c.mayApply(f, targets); err != nil {
		return reply{}, err
	}
	f.base = c.newBase(f.name, f.labels)
	c.firewalls.add(f)
	actions := c.beginAll(f.applying(targets))
	return reply{status: http.StatusCreated, body: map[string]any{
		kindFirewall: c.renderFirewall(f), "actions": actions,
	}}, nil
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
				err := errNotFound(kindServer, t.server)
				err.Status, err.Code = missing, "firewall_resource_not_found"
				return nil, err
			}
		case r.Type == targetSelector && r.LabelSelector != nil:
			t.selector = r.LabelSelector.Selector
			if _, err := parseSelector(t.selector); err != nil || t.selector == "" {
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
		if f.on(t) != nil {
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

// applying adds targets, and returns the actions that apply the firewall to them.
func (f *firewall) applying(targets []firewallTarget) (changes []change) {
	for _, t := range targets {
		a := &application{t, true}
		f.applied = append(f.applied, a)
		changes = append(changes, change{
			command: "apply_firewall",
			about:   f.about(t),
			holds:   []ref{f.ref()},
			finish:  func() { a.pending = false },
			undo:    func() { f.drop(t) },
		})
	}
	return changes
}

// about returns the firewall and a target that is a server.
func (f *firewall) about(t firewallTarget) []ref {
	if t.server == 0 {
		return []ref{f.ref()}
	}
	return []ref{{kindServer, t.server}, f.ref()}
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
		selected := func(a *application) bool { return s != nil && a.selects(s) }
		if f.on(t) == nil && slices.ContainsFunc(f.applied, selected) {
			return nil, errRefused("firewall_managed_by_label_selector",
				"the firewall is applied to server %d by a label selector", t.server)
		}
		changes = append(changes, change{
			command: "remove_firewall",
			about:   f.about(t),
			holds:   []ref{f.ref()},
			finish:  func() { f.drop(t) },
		})
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
	changes := []change{{
		command: "set_firewall_rules",
		about:   []ref{f.ref()},
		finish:  func() { f.rules = rules },
	}}
	for _, a := range f.applied {
		changes = append(changes, change{
			command: "apply_firewall",
			about:   f.about(a.firewallTarget),
			holds:   []ref{f.ref()},
		})
	}
	return changes, nil
}
