package project

import "net/http"

// operation is a request that changes something and that may be sent, if its judge agrees. What
// isn't in the table can't be sent, whoever asks for it.
type operation struct {
	method string
	// action is the last part of /{kind}/{id}/actions/{action}; empty for the resource itself, or,
	// if it makes one, for its collection.
	action string
	makes  bool
	// body judges the fields that the request's body may have; nil: it has no body.
	body fields
}

// takes reports whether an operation takes something away from who has it.
func (o operation) takes() bool {
	return o.method == http.MethodDelete || o.action == "assign" || o.action == "unassign"
}

// operations are those of a kind.
//
// What is missing is so on purpose: protection, which would keep a sweep from removing things;
// types, backups and images, which cost; firewalls, certificates, volumes, placement groups and
// selectors of labels, which lead to what isn't the run's; pointers of addresses, which are seen
// from everywhere.
func operations(k kind) []operation {
	update := func(more fields) operation {
		body := fields{"name": ourName, "labels": ourLabels}
		for name, judge := range more {
			body[name] = judge
		}
		return operation{method: http.MethodPut, body: body}
	}
	remove := operation{method: http.MethodDelete}
	toServer := fields{"server": ours(server)}
	switch k {
	case server:
		return []operation{
			createServer(), update(nil), remove,
			act("poweron", nil), act("poweroff", nil), act("shutdown", nil),
			act("reboot", nil), act("reset", nil),
			act("attach_to_network", fields{
				"network": ours(network), "ip": anything, "ip_range": anything, "alias_ips": anything,
			}),
			act("detach_from_network", fields{"network": ours(network)}),
			act("change_alias_ips", fields{"network": ours(network), "alias_ips": anything}),
		}
	case network:
		return []operation{
			createNetwork(), update(fields{"expose_routes_to_vswitch": anything}), remove,
			act("add_route", route()), act("delete_route", route()),
			act("add_subnet", subnet()), act("delete_subnet", fields{"ip_range": anything}),
			act("change_ip_range", fields{"ip_range": anything}),
		}
	case loadBalancer:
		return append([]operation{createLoadBalancer(), update(nil), remove}, balancing()...)
	case floatingIP:
		return []operation{
			createFloatingIP(), update(fields{"description": anything}), remove,
			act("assign", toServer), act("unassign", nil),
		}
	case primaryIP:
		return []operation{
			createPrimaryIP(), update(fields{"auto_delete": anything}), remove,
			act("assign", fields{
				"assignee_id": ours(server), "assignee_type": only(string(server)),
			}),
			act("unassign", nil),
		}
	case sshKeyKind:
		return []operation{{
			method: http.MethodPost, makes: true,
			body: fields{"name": ourName, "labels": ourLabels, "public_key": anything},
		}, remove}
	}
	return nil
}

func act(name string, body fields) operation {
	return operation{method: http.MethodPost, action: name, body: body}
}

func balancing() []operation {
	return []operation{
		act("add_service", service()), act("update_service", service()),
		act("delete_service", fields{"listen_port": anything}),
		act("add_target", target()), act("remove_target", target()),
		act("change_algorithm", fields{"type": anything}),
		act("attach_to_network", fields{
			"network": ours(network), "ip": anything, "ip_range": anything,
		}),
		act("detach_from_network", fields{"network": ours(network)}),
		act("enable_public_interface", nil), act("disable_public_interface", nil),
	}
}

func createServer() operation {
	return operation{method: http.MethodPost, makes: true, body: fields{
		"name": ourName, "labels": ourLabels, "server_type": plannedServerType,
		"location": plannedLocation, "image": anything, "user_data": anything,
		"start_after_create": anything, "automount": anything,
		"networks": all(ours(network)), "ssh_keys": all(ours(sshKeyKind)),
		"public_net": object(fields{
			"enable_ipv4": anything, "enable_ipv6": anything,
			"ipv4": ours(primaryIP), "ipv6": ours(primaryIP),
		}),
		"volumes": nothing, "firewalls": nothing, "placement_group": nothing,
	}}
}

func createNetwork() operation {
	return operation{method: http.MethodPost, makes: true, body: fields{
		"name": ourName, "labels": ourLabels,
		"ip_range": anything, "expose_routes_to_vswitch": anything,
		"subnets": all(object(subnet())), "routes": all(object(route())),
	}}
}

func createLoadBalancer() operation {
	return operation{method: http.MethodPost, makes: true, body: fields{
		"name": ourName, "labels": ourLabels, "load_balancer_type": plannedLoadBalancerType,
		"algorithm": anything, "location": anything, "network_zone": anything,
		"public_interface": anything,
		"network":          ours(network),
		"public_net":       object(fields{"ipv4": ours(primaryIP), "ipv6": ours(primaryIP)}),
		"services":         all(object(service())),
		"targets":          all(object(target())),
	}}
}

func createFloatingIP() operation {
	return operation{method: http.MethodPost, makes: true, body: fields{
		"name": ourName, "labels": ourLabels, "home_location": anything, "description": anything,
		"type":   only("ipv6"), // an IPv4 address costs more than the plan knows
		"server": ours(server),
	}}
}

func createPrimaryIP() operation {
	return operation{method: http.MethodPost, makes: true, body: fields{
		"name": ourName, "labels": ourLabels,
		"type": anything, "location": anything, "auto_delete": anything,
		"assignee_type": only(string(server)), "assignee_id": ours(server),
	}}
}

func route() fields { return fields{"destination": anything, "gateway": anything} }

func subnet() fields {
	return fields{
		"type": anything, "ip_range": anything, "network_zone": anything, "vswitch_id": plannedVSwitch,
	}
}

func service() fields {
	return fields{
		"protocol": anything, "listen_port": anything, "destination_port": anything,
		"proxyprotocol": anything, "health_check": anything,
		"http": object(fields{
			"cookie_name": anything, "cookie_lifetime": anything, "sticky_sessions": anything,
			"redirect_http": anything, "timeout_idle": anything, "certificates": nothing,
		}),
	}
}

func target() fields {
	return fields{
		"type": only(string(server), "ip"), "use_private_ip": anything,
		"server":         object(fields{"id": ours(server), "ip": anything}),
		"ip":             object(fields{"ip": plannedAddress}),
		"label_selector": nothing,
	}
}
