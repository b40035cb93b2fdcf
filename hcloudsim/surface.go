package hcloudsim

import (
	"slices"
	"strings"
)

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
	kind, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return path == "/networks/{id}/members" || slices.Contains([]string{
		"images", "isos", "placement_groups", "ssh_keys", "storage_boxes", "volumes", "zones",
	}, kind)
}
