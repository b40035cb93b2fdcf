package hcloudsim

import (
	"net/http"
	"path"
	"slices"
	"strings"
)

// operation is one row of the API's surface, with the path as in the description.
type operation struct {
	method, path string
	do           endpoint
}

// operations returns all simulated operations. Other operations return 404, like unknown paths.
func operations() []operation {
	return slices.Concat([]operation{
		{"GET", "/actions", (*call).listActions},
		{"GET", "/actions/{id}", getAction("", "id")},
	}, catalogOperations(), serverOperations(), imageOperations(), sshKeyOperations(),
		placementGroupOperations(), volumeOperations(), firewallOperations(),
		certificateOperations(), networkOperations(), loadBalancerOperations(),
		primaryIPOperations(), floatingIPOperations())
}

// routes builds the router. ServeMux rejects "/x/actions/{id}" and "/x/{id}/actions" as
// conflicting, because both match "/x/actions/actions"; so the latter paths are registered as
// "/x/{id}/{listing}" and dispatched here.
func routes() *http.ServeMux {
	mux := http.NewServeMux()
	listings := map[string]map[string]endpoint{}
	for _, op := range operations() {
		collection, listing, nested := strings.Cut(op.path, "/{id}/")
		if !nested || strings.Contains(listing, "/") {
			mux.Handle(op.method+" "+op.path, op.do)
			continue
		}
		pattern := op.method + " " + collection + "/{id}/{listing}"
		if listings[pattern] == nil {
			listings[pattern] = map[string]endpoint{}
		}
		listings[pattern][listing] = op.do
	}
	for pattern, byName := range listings {
		mux.Handle(pattern, endpoint(func(c *call) (reply, error) {
			do, known := byName[c.request.PathValue("listing")]
			if !known {
				return reply{}, errNoSuchPath()
			}
			return do(c)
		}))
	}
	mux.Handle("/", endpoint(func(c *call) (reply, error) {
		return reply{}, noOperation(mux, c.request)
	}))
	return mux
}

// noOperation distinguishes an unsupported method of a known path from an unknown path. The path
// of an action that is not simulated only resembles that of a past action.
func noOperation(mux *http.ServeMux, r *http.Request) error {
	if at, name := path.Split(r.URL.Path); strings.HasSuffix(at, "/actions/") && !isID(name) {
		return errNoSuchPath()
	}
	for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "/" {
			return newError(http.StatusMethodNotAllowed, "method_not_allowed",
				"the request method is not allowed")
		}
	}
	return errNoSuchPath()
}

// Operation is one simulated operation.
type Operation struct {
	Method string
	Path   string // below /v1, as in the description
	// Described reports whether Hetzner's OpenAPI description, not only hcloud-go, has it.
	Described bool
}

// Operations returns all simulated operations.
func Operations() (all []Operation) {
	undescribed := []string{
		"images", "isos", "placement_groups", "ssh_keys", "storage_boxes", "volumes", "zones",
	}
	for _, op := range operations() {
		kind, _, _ := strings.Cut(strings.TrimPrefix(op.path, "/"), "/")
		described := op.path != "/networks/{id}/members" && !slices.Contains(undescribed, kind)
		all = append(all, Operation{op.method, op.path, described})
	}
	return all
}

// Kinds returns the kinds of resources that [Options.Quotas] can limit.
func Kinds() []string {
	return []string{
		kindServer, kindNetwork, kindLoadBalancer, kindCertificate, kindPrimaryIP, kindFloatingIP,
		kindSSHKey, kindVolume, kindFirewall, kindPlacementGroup,
	}
}
