package hcloudsim

import "strings"

// Operation is one simulated operation.
type Operation struct {
	Method string
	Path   string // below /v1, as in the description
	// Described reports whether Hetzner's OpenAPI description, not only hcloud-go, has it.
	Described bool
}

// Operations returns all simulated operations.
func Operations() []Operation {
	var all []Operation
	for _, op := range operations() {
		all = append(all, Operation{op.method, op.path, !newer(op.path)})
	}
	return all
}

// newer reports whether a path is missing from the description.
func newer(path string) bool {
	return strings.HasPrefix(path, "/images") || strings.HasPrefix(path, "/ssh_keys") || path == "/networks/{id}/members"
}

// Omission is an operation of the description that is not simulated.
type Omission struct {
	Path   string // below /v1; a trailing * matches any suffix
	Reason string
}

// Covers reports whether the omission includes a path.
func (o Omission) Covers(path string) bool {
	if prefix, cut := strings.CutSuffix(o.Path, "*"); cut {
		return strings.HasPrefix(path, prefix)
	}
	return path == o.Path
}

// Omissions returns the operations of the description that are not simulated. They return 404.
func Omissions() []Omission {
	const unneeded = "not part of what a cluster's controllers do"
	return []Omission{
		{"/datacenters*", "removed from the API"},
		{"/firewalls*", "the simulator has no packets to filter"},
		{"/load_balancers/{id}/metrics", "there is no traffic to measure"},
		{"/servers/{id}/metrics", "there is no load to measure"},
		{"/servers/{id}/actions/add_to_placement_group", "there are no placement groups"},
		{"/servers/{id}/actions/remove_from_placement_group", "there are no placement groups"},
		{"/servers/{id}/actions/attach_iso", unneeded},
		{"/servers/{id}/actions/detach_iso", unneeded},
		{"/servers/{id}/actions/change_type", unneeded},
		{"/servers/{id}/actions/create_image", unneeded},
		{"/servers/{id}/actions/enable_backup", unneeded},
		{"/servers/{id}/actions/disable_backup", unneeded},
		{"/servers/{id}/actions/enable_rescue", unneeded},
		{"/servers/{id}/actions/disable_rescue", unneeded},
		{"/servers/{id}/actions/rebuild", unneeded},
		{"/servers/{id}/actions/request_console", unneeded},
		{"/servers/{id}/actions/reset_password", unneeded},
	}
}
